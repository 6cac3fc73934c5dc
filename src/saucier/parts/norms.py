"""Norms: one module for each norm config."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c


def build_norm(norm: c.Norm, dim: int) -> nn.Module:
    """Return the module for a norm config. Shapes: [..., D] -> [..., D]."""
    match norm:
        case c.LayerNorm(eps=eps, bias=bias):
            return nn.LayerNorm(dim, eps=eps, bias=bias)
        case c.RMSNorm(eps=eps):
            return nn.RMSNorm(dim, eps=eps)
        case c.PlainLayerNorm(eps=eps):
            return nn.LayerNorm(dim, eps=eps, elementwise_affine=False)
        case c.NoNorm():
            return NoNorm(dim)
        case c.IdentityNorm():
            return nn.Identity()


class NoNorm(nn.Module):
    """`gain * x + bias`. Source: Sun et al. 2020 (MobileBERT), §3.3, arXiv:2004.02984 (C eq 45)."""

    def __init__(self, dim: int) -> None:
        """Build gain and bias [D]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))
        self.bias = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: [..., D] -> [..., D]."""
        return self.weight * x + self.bias
