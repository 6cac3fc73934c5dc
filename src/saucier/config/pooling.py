"""How the vectors of a text's tokens become one, for heads that give vectors; and a map that may follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Activation


class Pooled(Config):
    """The vector that the model's pooler gives. Source: Devlin et al. 2019, §3.2, arXiv:1810.04805."""

    kind: Literal["pooled"] = "pooled"


class First(Config):
    """The first position's vector."""

    kind: Literal["first"] = "first"


class FirstReal(Config):
    """The first real token's vector, that of `[CLS]`."""

    kind: Literal["cls"] = "cls"


class MeanReal(Config):
    """The mean over real tokens. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084."""

    kind: Literal["mean"] = "mean"


class MaxReal(Config):
    """The largest value over real tokens, in each dimension. Source: likewise."""

    kind: Literal["max"] = "max"


class MeanRoot(Config):
    """The sum over real tokens by the root of their number."""

    kind: Literal["mean_sqrt_len"] = "mean_sqrt_len"


class WeightedMean(Config):
    """The mean over real tokens, a later one weighing more: position over sum of positions.

    Source: Muennighoff 2022 (SGPT), §3.2, arXiv:2202.08904.
    """

    kind: Literal["weighted_mean"] = "weighted_mean"


class LastReal(Config):
    """The last real token's vector."""

    kind: Literal["last"] = "last"


Pooling = Annotated[Pooled | First | FirstReal | MeanReal | MaxReal | MeanRoot | WeightedMean | LastReal,
                    Field(discriminator="kind")]
"""How token vectors become one."""


class DenseMap(Config):
    """A map of the pooled vector to another width."""

    width: int = Field(gt=0, le=2**20)
    """Width of the output."""
    bias: bool = True
    """Bias on the map."""
    activation: Activation = "tanh"
    """What follows it."""
