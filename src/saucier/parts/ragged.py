"""Rows without their padding: a batch of [B, L] with a mask becomes one row [1, T] of real tokens, and back.

Every map that works on single positions then does no work on padding; attention runs row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WORTH = 0.8
"""Rows are packed when at most this part of the batch is real tokens: below it the saved work outweighs the calls."""
SHORT = 64
"""Up to this length attention pads again: its work on padding is small beside the calls that it saves."""


@dataclass(slots=True)
class Ragged:
    """Which positions of a right-padded batch are real."""

    lengths: list[int]
    """Real tokens in each row."""
    index: Tensor
    """[T], where each real token stands in the flattened batch."""
    mask: Tensor
    """[B, L], True where a token is real."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, L) of the padded batch."""
        return self.mask.shape[0], self.mask.shape[1]

    @property
    def short(self) -> bool:
        """Whether rows are so short that one attention over the padded batch beats one call a row."""
        return max(self.lengths) <= SHORT

    def pack(self, x: Tensor) -> Tensor:
        """Shapes: [B, L, ...] -> [1, T, ...]."""
        return x.flatten(0, 1).index_select(0, self.index)[None]

    def unpack(self, x: Tensor) -> Tensor:
        """Shapes: [1, T, ...] -> [B, L, ...], zeros where there was padding."""
        rows, length = self.shape
        full = x.new_zeros(rows * length, *x.shape[2:])
        return full.index_copy(0, self.index, x[0]).view(rows, length, *x.shape[2:])


def ragged_of(mask: Tensor) -> Ragged | None:
    """Return the layout of a right-padded mask [B, L]; None where a row is empty or padding precedes real tokens."""
    lengths = mask.sum(1)
    positions = torch.arange(mask.shape[1], device=mask.device)
    if not torch.equal(mask.bool(), positions < lengths[:, None]) or bool((lengths == 0).any()):
        return None
    return Ragged(lengths.tolist(), mask.flatten().nonzero()[:, 0], mask.bool())


def worth_packing(*masks: Tensor | None) -> bool:
    """Say whether these batches hold enough padding for packing to pay."""
    if torch.compiler.is_compiling():  # a compiled model keeps its shapes
        return False
    real = sum(int(mask.sum()) for mask in masks if mask is not None)
    return real < WORTH * sum(mask.numel() for mask in masks if mask is not None)
