"""Operations between published weights and ours, each with its inverse: transpose, concatenate, reorder heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Operation(Protocol):
    """How foreign tensors become ours, and back."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Make our tensor from the foreign ones, in the rule's order."""
        ...

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Make the foreign tensors from ours: the inverse of `ours`."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """The tensor as it is."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return it."""
        return tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return it."""
        return [tensor]


@dataclass(frozen=True, slots=True)
class Transpose:
    """A matrix stored as [inputs, outputs]; vectors stay as they are."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Transpose."""
        return transpose(tensors[0])

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Transpose back."""
        return [transpose(tensor)]


def transpose(tensor: Tensor) -> Tensor:
    """Transpose a matrix, and leave a vector alone."""
    return tensor.T if tensor.dim() == 2 else tensor


@dataclass(frozen=True, slots=True)
class Concat:
    """Several maps as the rows of one; `rows` says how many rows each has."""

    rows: tuple[int, ...]

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put them after each other. Raises `ValueError` when one has another number of rows."""
        found = tuple(tensor.shape[0] for tensor in tensors)
        if found != self.rows:
            raise ValueError(f"rows {list(found)} instead of {list(self.rows)}")
        import torch

        return torch.cat(list(tensors))

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return list(tensor.split(list(self.rows)))


@dataclass(frozen=True, slots=True)
class Twins:
    """One tensor under several names: the first that a file holds counts, and all of them are written.

    BERT's output bias stands twice in files whose output matrix is not tied.
    """

    count: int = 2

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the first."""
        return tensors[0]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return it for every name."""
        return [tensor, *(tensor.clone() for _ in range(self.count - 1))]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A matrix [R, C], and further columns of it that are stored as the rows of a second: [others, R]."""

    columns: int
    """Columns of the first."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the columns next to each other. Raises `RuntimeError` for other numbers of rows."""
        import torch

        return torch.cat([tensors[0], tensors[1].T], dim=1)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [tensor[:, :self.columns], tensor[:, self.columns:].T]


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of a table whose others the reference stores and never reads; only ours are written."""

    rows: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take them."""
        return tensors[0][:self.rows]

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return them."""
        return [tensor]


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The same values in another shape; a -1 stands for what is left."""

    shape: tuple[int, ...]
    """Ours."""
    foreign: tuple[int, ...]

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Give it our shape."""
        return tensors[0].reshape(self.shape)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Give it theirs."""
        return [tensor.reshape(self.foreign)]


@dataclass(frozen=True, slots=True)
class PerHead:
    """Maps stored as [inputs, heads, head width], as the rows of one; `maps` says how many."""

    heads: int
    maps: int = 1

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the heads' rows after each other. Raises `ValueError` for another number of heads."""
        if any(tensor.dim() != 3 or tensor.shape[1] != self.heads for tensor in tensors):
            raise ValueError(f"{[list(tensor.shape) for tensor in tensors]} instead of [inputs, {self.heads}, width]")
        import torch

        return torch.cat([tensor.flatten(1).T for tensor in tensors])

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Split them."""
        return [part.T.reshape(part.shape[1], self.heads, -1) for part in tensor.chunk(self.maps)]


@dataclass(frozen=True, slots=True)
class HeadByHead:
    """Queries, keys and values of each head in turn, which we keep as all queries, all keys, all values.

    Source: Shoeybi et al. 2019 (Megatron-LM), code release; GPT-NeoX, BLOOM and the first DeBERTa.
    """

    heads: int
    parts: int = 3

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Put the parts first. Raises `RuntimeError` where the rows do not divide."""
        return swap_levels(tensors[0], self.heads, self.parts)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put the heads first."""
        return [swap_levels(tensor, self.parts, self.heads)]


def swap_levels(tensor: Tensor, outer: int, inner: int) -> Tensor:
    """Exchange two levels of the order of rows. Shapes: [outer · inner · E, ...] -> the same."""
    return tensor.view(outer, inner, -1, *tensor.shape[1:]).transpose(0, 1).flatten(0, 2)


@dataclass(frozen=True, slots=True)
class Axis:
    """A tensor that is published with one more dimension, of size 1, at `place`; a file may lack it."""

    place: int

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Take the dimension away."""
        return tensors[0].squeeze(self.place)

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Put it back."""
        return [tensor.unsqueeze(self.place)]


@dataclass(frozen=True, slots=True)
class ZeroRow:
    """A table of which the reference sets one row to zero when it reads a file: that of padding, which is pooled."""

    row: int | None
    """None: there is none."""

    def ours(self, tensors: Sequence[Tensor]) -> Tensor:
        """Set the row to zero."""
        found = tensors[0].clone()
        found[[] if self.row is None else self.row] = 0
        return found

    def theirs(self, tensor: Tensor) -> list[Tensor]:
        """Return the table as it is."""
        return [tensor]
