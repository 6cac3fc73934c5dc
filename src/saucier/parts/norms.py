"""Norms, one module for each norm config, and dropout that draws its randomness in bulk on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
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
        case c.Unnormed(kind="no_norm"):
            return NoNorm(dim)
        case c.Unnormed():
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


DRAW_LEVELS = 2**16
"""Random bits are read 16 at a time, so the rate is rounded to a multiple of 1/65536, and the scale with it."""


class Dropout(nn.Module):
    """Zero each value with probability `rate` in training, scaling the rest up.

    Source: Srivastava et al. 2014, JMLR 15, §4.
    """

    def __init__(self, rate: float) -> None:
        """Keep the rate."""
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: any -> the same. Does nothing outside training."""
        return dropout(x, self.rate) if self.training else x

    def extra_repr(self) -> str:
        """Show the rate."""
        return f"rate={self.rate}"


def dropout(x: Tensor, rate: float) -> Tensor:
    """Apply dropout, drawing from torch's global generator. Shapes: any -> the same.

    On the CPU four values share one 64-bit draw: six times faster than one draw a value.
    """
    if not rate:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    dropped = round(rate * DRAW_LEVELS)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[:x.numel()].view(x.shape)
    return x * (bits >= dropped - DRAW_LEVELS // 2).to(x.dtype).mul_(DRAW_LEVELS / (DRAW_LEVELS - dropped))
