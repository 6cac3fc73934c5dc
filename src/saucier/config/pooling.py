"""How the vectors of a text's tokens become one, for heads that give vectors; and the maps that may follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Activation


class FirstReal(Config):
    """The first position's vector, that of `[CLS]`."""

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


Pooling = Annotated[FirstReal | MeanReal | MaxReal | MeanRoot | WeightedMean | LastReal, Field(discriminator="kind")]
"""How token vectors become one."""


class DenseMap(Config):
    """A map of the pooled vector to another width."""

    width: int = Field(gt=0, le=2**20)
    """Width of the output."""
    bias: bool = True
    """Bias on the map."""
    activation: Activation = "tanh"
    """What follows it."""


class EmbeddingHead(Config):
    """One vector for a text, by which texts are compared. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084."""

    kind: Literal["embedding"] = "embedding"
    pooling: tuple[Pooling, ...] = Field(default=(MeanReal(),), min_length=1)
    """Each gives a vector; several stand side by side."""
    maps: tuple[DenseMap, ...] = ()
    """Maps of the pooled vector, in order."""
    normalize: bool = True
    """Scale the vector to length one."""
    length: int | None = Field(default=None, gt=0)
    """Longest text, in tokens, that the head was trained on; `embed` cuts longer ones."""

    def widths(self, dim: int) -> list[int]:
        """Return the widths of the vector: pooled, and after each map."""
        return [dim * len(self.pooling), *(one.width for one in self.maps)]
