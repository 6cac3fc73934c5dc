"""Norms as data, and the type of a dropout rate: what every other part of the tree is made with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Probability = Annotated[float, Field(ge=0, lt=1)]


class LayerNorm(Config):
    """Centre, scale, gain and bias. Source: Ba et al. 2016, arXiv:1607.06450."""

    kind: Literal["layer_norm"] = "layer_norm"
    eps: float = Field(default=1e-5, ge=0)
    """Added to the variance."""
    bias: bool = True
    """Whether a trained bias is added after the gain."""


class RMSNorm(Config):
    """Scale by the root mean square, then gain; no centring. Source: Zhang and Sennrich 2019, arXiv:1910.07467."""

    kind: Literal["rms_norm"] = "rms_norm"
    eps: float = Field(default=1e-6, ge=0)
    """Added to the mean square."""


Norm = Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")]
