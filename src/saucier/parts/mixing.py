"""Mixing of tokens without attention.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context


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
