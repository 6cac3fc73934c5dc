"""What a decoder reads where a batch gives it nothing.

Letters: B batch, S source length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saucier import config as c


def derived(target: c.ShiftedSource | c.RotatedSource, source: Tensor) -> Tensor:
    """Return the ids of the decoder, made of the source's. Shapes: [B, S] -> [B, S]."""
    match target:
        case c.ShiftedSource(start=start):
            first = torch.full_like(source[:, :1], start)
        case c.RotatedSource(padding=padding):
            first = source.gather(1, (source != padding).sum(1, keepdim=True) - 1)
    return torch.cat([first, source[:, :-1]], dim=1)
