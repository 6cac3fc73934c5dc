"""Norms: one module for each norm config."""

from __future__ import annotations

from torch import nn

from saucier import config as c


def build_norm(norm: c.Norm, dim: int) -> nn.Module:
    """Return the module for a norm config. Shapes: [..., D] -> [..., D]."""
    match norm:
        case c.LayerNorm(eps=eps, bias=bias):
            return nn.LayerNorm(dim, eps=eps, bias=bias)
        case c.RMSNorm(eps=eps):
            return nn.RMSNorm(dim, eps=eps)
