"""Mixing of tokens without attention: Fourier transforms and convolutions.

A convolution reads the neighbours of each token, never padding nor another document.

Letters: B batch, L length, D dim, N neighbours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.linear import ACTIVATIONS
from saucier.parts.norms import Dropout, build_norm


class FourierMixing(nn.Module):
    """The real part of the transform over width and tokens. Source: Lee-Thorp et al. 2022, §3.2, arXiv:2105.03824."""

    def __init__(self, config: c.FourierMixing, dim: int) -> None:
        """Nothing is trained."""
        super().__init__()
        self.config = config

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]. Raises `InputError` for packed documents, which would mix."""
        if context.span.query_documents is not None:
            raise InputError("a Fourier transform mixes all tokens of a row, so documents cannot be kept apart",
                             where="documents", remedy="give one document a row")
        transformed: Tensor = torch.fft.fftn(x.float(), dim=(1, 2))
        return transformed.real.to(x.dtype)


def shift_tokens(x: Tensor, by: int) -> Tensor:
    """Return at each place what is `by` places later, zeros beyond the ends. Shapes: [B, L, ...] -> the same."""
    length = x.shape[1]
    pad = (0, 0) * (x.dim() - 2)
    if by >= 0:
        return F.pad(x[:, min(by, length):], (*pad, 0, min(by, length)))
    return F.pad(x[:, :max(length + by, 0)], (*pad, min(-by, length), 0))


def gather_neighbours(x: Tensor, reach: int, documents: Tensor | None) -> Tensor:
    """Return each token's neighbours up to `reach` away, itself in the middle; zeros beyond its row and its document.

    Shapes: x [B, L, D], documents [B, L] -> [B, L, N, D] with N = 2·reach + 1.
    """
    found = []
    for by in range(-reach, reach + 1):
        there = shift_tokens(x, by)
        if documents is not None:
            there = there * (shift_tokens(documents + 1, by) == documents + 1)[..., None]
        found.append(there)
    return torch.stack(found, dim=2)


class Convolution(nn.Module):
    """A convolution next to a stack's first block. Source: He et al. 2021, DeBERTa-v2's code release."""

    def __init__(self, config: c.Convolution, dim: int) -> None:
        """Build the kernel [D, D / groups, N], its bias, and the norm."""
        super().__init__()
        self.config, self.groups, self.reach = config, config.groups, config.size // 2
        self.weight = nn.Parameter(torch.empty(dim, dim // config.groups, config.size))
        self.bias = nn.Parameter(torch.empty(dim))
        self.activation, self.dropout = ACTIVATIONS[config.activation], Dropout(config.dropout)
        self.norm = build_norm(config.norm, dim)

    def forward(self, x: Tensor, block: Tensor, context: Context) -> Tensor:
        """Add the convolved input to the first block's output. Shapes: x, block [B, L, D] -> [B, L, D]."""
        made = self.activation(self.dropout(self.convolved(x, context)))
        return self.norm(block + made)  # type: ignore[no-any-return]

    def convolved(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D], or [1, T, D] when packed -> the same."""
        layout, padding = context.layout, context.span.padding
        full = x if layout is None else layout.unpack(x)
        if padding is not None:
            full = full * padding[..., None]
        around = gather_neighbours(full, self.reach, context.span.query_documents)
        cut = around.unflatten(-1, (self.groups, -1)).permute(0, 1, 3, 4, 2).flatten(3)
        kernel = self.weight.unflatten(0, (self.groups, -1)).flatten(2)
        made = torch.einsum("blgi,goi->blgo", cut, kernel).flatten(2) + self.bias
        return made if layout is None else layout.pack(made)
