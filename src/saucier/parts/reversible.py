"""Two residual streams, of which each sublayer reads one and changes the other.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saucier.parts.context import Context


def two_streams(x: Tensor, blocks: Sequence[nn.Module], context: Context, record: list[Tensor] | None) -> Tensor:
    """Apply blocks to two streams that begin as `x`; `record` receives the second before each block and at the end.

    Shapes: x [B, L, D] -> [B, L, 2D], the first stream before the second.
    Source: Kitaev et al. 2020, §3, eq 9, arXiv:2001.04451 (S eq 103–105).
    """
    first = second = x
    for block in blocks:
        if record is not None:
            record.append(second)
        sublayers = list(block.children())
        for reads_second, reads_first in zip(sublayers[::2], sublayers[1::2], strict=True):
            first = first + reads_second.change(second, context)  # type: ignore[operator]  # check() allows no other
            second = second + reads_first.change(first, context)  # type: ignore[operator]  # likewise
    if record is not None:
        record.append(second)
    return torch.cat([first, second], dim=-1)
