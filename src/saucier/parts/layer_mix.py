"""A weighted mean of what all layers give. Letters: B batch, L length, D dim, J layers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.dropout import Dropout
from saucier.parts.norms import build_norm


class LayerMix(nn.Module):
    """`γ Σ_j s_j h_j`, s = softmax of trained weights. Source: Peters et al. 2018, §3.2, eq 1, arXiv:1802.05365."""

    def __init__(self, config: c.LayerMix, dim: int, layers: int) -> None:
        """Build weights for so many layers, the embedding among them."""
        super().__init__()
        self.config = config
        self.weights, self.scale = nn.Parameter(torch.empty(layers)), nn.Parameter(torch.empty(1))
        self.norm = build_norm(config.norm, dim) if config.norm else None
        self.dropout = Dropout(config.dropout)

    def begin(self) -> None:
        """Begin with the plain mean."""
        self.weights.zero_()
        self.scale.fill_(self.config.scale)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """Shapes: J times [B, L, D] -> [B, L, D]."""
        layers = torch.stack(tuple(states))
        normed = layers if self.norm is None else self.norm(layers)
        shares = (self.scale * self.weights.softmax(0)).to(normed.dtype)
        return self.dropout(torch.tensordot(shares, normed, dims=1))  # type: ignore[no-any-return]
