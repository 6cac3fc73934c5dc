"""Whole numbers of a few bits in bytes, without gaps, and back.

Letters: O rows, I codes of a row, P bytes of a row.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor


def row_bytes(count: int, bits: int) -> int:
    """Return how many bytes a row of codes takes."""
    return -(-count * bits // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Put codes from 0 to 2^bits - 1 one after the other, the lowest bit first. Shapes: [O, I] -> [O, P], uint8.

    Eight codes take as many bytes as a code has bits.
    """
    words = F.pad(codes.long(), (0, -codes.shape[1] % 8)).unflatten(1, (-1, 8))
    places = torch.arange(8, device=codes.device)
    whole = (words << places * bits).sum(-1, keepdim=True)
    packed = cast(Tensor, whole >> places[:bits] * 8 & 255).to(torch.uint8).flatten(1)
    return packed[:, :row_bytes(codes.shape[1], bits)].contiguous()


def unpack(packed: Tensor, count: int, bits: int) -> Tensor:
    """Take the codes out again. Shapes: [O, P] -> [O, I], int32."""
    if bits == 8:
        return packed[:, :count].int()
    mask = 2**bits - 1
    if 8 % bits == 0:  # no code lies in two bytes: without words of 64 bits
        shifts = torch.arange(0, 8, bits, device=packed.device, dtype=torch.int32)
        return cast(Tensor, packed.int()[..., None] >> shifts & mask).flatten(1)[:, :count]
    groups = F.pad(packed.long(), (0, -packed.shape[1] % bits)).unflatten(1, (-1, bits))
    whole = (groups << torch.arange(bits, device=packed.device) * 8).sum(-1, keepdim=True)
    codes = cast(Tensor, whole >> torch.arange(8, device=packed.device) * bits & mask)
    return codes.int().flatten(1)[:, :count]
