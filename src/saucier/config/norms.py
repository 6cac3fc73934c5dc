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


class PlainLayerNorm(Config):
    """Centre and scale, with nothing trained. Source: Ba et al. 2016, §3, eq 3, arXiv:1607.06450; an option of OPT."""

    kind: Literal["plain_layer_norm"] = "plain_layer_norm"
    eps: float = Field(default=1e-5, ge=0)
    """Added to the variance."""


class Unnormed(Config):
    """No statistics are taken.

    - no_norm: gain and bias alone. Source: Sun et al. 2020 (MobileBERT), §3.3, arXiv:2004.02984;
    - identity: nothing at all, where what comes in is normed already. Source: Warner et al. 2024, §2.1.1,
      arXiv:2412.13663.
    """

    kind: Literal["no_norm", "identity"]


Norm = Annotated[LayerNorm | RMSNorm | PlainLayerNorm | Unnormed, Field(discriminator="kind")]
