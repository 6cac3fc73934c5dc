"""A weighted mean of what all layers give, as data."""

from __future__ import annotations

from pydantic import Field

from saucier.config.base import Config
from saucier.config.norms import Norm, Probability


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
