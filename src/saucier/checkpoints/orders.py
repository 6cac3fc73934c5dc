"""Operations of rules that put the rows of a published map into our order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a family's tables are data: reading them must not load torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class HeadByHead:
    """Queries, keys and values of each head in turn, which we keep as all queries, all keys, all values.

    Source: Shoeybi et al. 2019 (Megatron-LM), code release; GPT-NeoX, BLOOM and the first DeBERTa.
    """

    heads: int
    parts: int = 3

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the parts first. Raises `RuntimeError` where the rows do not divide."""
        return swapped(tensors[0], self.heads, self.parts)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put the heads first."""
        return [swapped(tensor, self.parts, self.heads)]


def swapped(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Exchange two levels of the order of rows. Shapes: [outer · inner · E, ...] -> the same."""
    return tensor.view(outer, inner, -1, *tensor.shape[1:]).transpose(0, 1).flatten(0, 2)


@dataclass(frozen=True, slots=True)
class Axis:
    """A table [rows, width] that is published with a dimension of 1 at `place`."""

    place: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take the dimension away."""
        return tensors[0].squeeze(self.place)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put it back."""
        return [tensor.unsqueeze(self.place)]
