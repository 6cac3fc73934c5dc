"""Parts that look at the tokens right beside each token, as data."""

from __future__ import annotations

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Activation, LayerNorm, Norm, Probability


class Convolution(Config):
    """A convolution of a stack's input, beside its first block: `norm(block(x) + activation(dropout(conv(x))))`.

    Source: He et al. 2021, DeBERTa-v2's code release ("nGiE", n-gram induced input encoding).
    """

    size: int = Field(default=3, gt=0)
    """How many neighbouring tokens a value is made of; odd, the token itself in the middle."""
    groups: int = Field(default=1, gt=0)
    """Into how many parts the width is cut; each part is made of itself alone."""
    activation: Activation = "tanh"
    """What follows the convolution."""
    norm: Norm = LayerNorm()
    """The norm of the sum."""
    dropout: Probability = 0.0
    """Dropout on the convolution's values."""
