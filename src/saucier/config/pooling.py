"""How hidden vectors become one vector for a text: poolings, single positions, a mean of all layers, the pooler."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Activation
from saucier.config.norms import Norm, Probability


class Pooling(Config):
    """How token vectors become one.

    - pooled: the vector that the model's pooler gives. Source: Devlin et al. 2019, §3.2, arXiv:1810.04805;
    - first: the first position's vector;
    - cls: the first real token's vector, that of `[CLS]`;
    - mean: the mean over real tokens. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084;
    - max: the largest value over real tokens, in each dimension. Source: likewise;
    - mean_sqrt_len: the sum over real tokens by the root of their number;
    - weighted_mean: the mean over real tokens, a later one weighing more: position over sum of positions. Source:
      Muennighoff 2022 (SGPT), §3.2, arXiv:2202.08904;
    - last: the last real token's vector.
    """

    kind: Literal["pooled", "first", "cls", "mean", "max", "mean_sqrt_len", "weighted_mean", "last"]


class DenseMap(Config):
    """A map of the pooled vector to another width."""

    width: int = Field(gt=0, le=2**20)
    """Width of the output."""
    bias: bool = True
    """Bias on the map."""
    activation: Activation = "tanh"
    """What follows it."""


class LayerMix(Config):
    """`γ Σ_j s_j h_j` over the embedding and every block's output, with trained γ and s = softmax of trained weights.

    Source: Peters et al. 2018 (ELMo), §3.2, eq 1, arXiv:1802.05365 (C eq 17). What the paper calls regularization of
    the weights is weight decay here: with it s stays near the mean.
    """

    norm: Norm | None = None
    """A norm of every layer's vectors before they are weighted, the same for all layers."""
    dropout: Probability = 0.0
    """Dropout on the mix. Source: §3.3."""
    scale: float = Field(default=1.0, gt=0)
    """Where γ begins."""


class PickVector(Config):
    """The one vector for a whole input, where nothing more need be known.

    - pooled: the vector that the model's pooler gives. Source: Devlin et al. 2019, §3.2, arXiv:1810.04805;
    - first: the first position's vector;
    - first_unmasked: the vector of the first token that is not padding. Source: Warner et al. 2024 (ModernBERT), code
      release;
    - last: the last position's vector, whatever stands there;
    - mean: the mean of the vectors of real tokens. Source: Reimers and Gurevych 2019, §3, arXiv:1908.10084;
    - mean_all: the mean of all positions' vectors, padding included, as the summaries of published classes take it;
    - chosen: the vector at the position that the batch names (`mc_token_ids`); without one, the last position's.
    """

    kind: Literal["pooled", "first", "first_unmasked", "last", "mean", "mean_all", "chosen"]


class LastToken(Config):
    """The vector of the last token that is not padding. Source: Radford et al. 2018, §3.2, reads the last token."""

    kind: Literal["last_token"] = "last_token"
    padding: int | None = None
    """Id of the padding token; None: the last position."""


class EndToken(Config):
    """The vector at the last end-of-text token of a row. Source: Lewis et al. 2020 (BART), §3.1, arXiv:1910.13461."""

    kind: Literal["end_token"] = "end_token"
    token: int
    """Id of the token; every row must hold equally many of it."""


Pick = Annotated[PickVector | LastToken | EndToken, Field(discriminator="kind")]
"""Where the one vector for a whole input is taken."""


class Pooler(Config):
    """A dense layer and an activation on the first token. Source: Devlin et al. 2019, code release."""

    dense: bool = True
    """Whether there is a dense layer; without one and with activation identity it is the first token's vector."""
    activation: Activation = "tanh"
    """What follows the dense layer."""
