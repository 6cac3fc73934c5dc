"""The cache: keys and values, preallocated and written in place, the encoder's computed once; recurrent states.

Letters: B batch, K key-value heads, L length, S source length, E head width, W width of a state, A of an alignment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Cache:
    """Keys and values of every decoder block for up to `capacity` positions.

    Source: Shazeer 2019, §2.4, arXiv:1911.02150.
    """

    keys: list[Tensor]
    """One [B, K, capacity, E] for each self-attention, in the order they are computed."""
    values: list[Tensor]
    capacity: int
    length: int = 0
    """Positions that are filled."""
    cross: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Number of the cross-attention -> the encoder output's keys and values [B, K, S, E]."""
    states: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)
    """Number of the recurrent sublayer -> its states [B, W]."""
    source: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)
    """Number of the recurrent sublayer -> the encoder's output [B, S, D], and what its score makes of it [B, S, A]."""

    @classmethod
    def empty(cls, widths: list[tuple[int, int]], *, batch: int, capacity: int, dtype: torch.dtype,
              device: torch.device) -> Cache:
        """Allocate for self-attentions of the given (key-value heads, head width)."""
        def allocate() -> list[Tensor]:
            return [torch.zeros(batch, heads, capacity, head, dtype=dtype, device=device) for heads, head in widths]

        return cls(allocate(), allocate(), capacity)

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [B, K, L, E] behind the filled ones; return views of all of them."""
        end = self.length + key.shape[2]
        keys, values = self.keys[slot], self.values[slot]
        keys[:, :, self.length:end] = key
        values[:, :, self.length:end] = value
        return keys[:, :, :end], values[:, :, :end]

    def reorder(self, rows: Tensor, *, same_source: bool = False) -> None:
        """Replace row i by row `rows[i]` (beam search); the number of rows may change. Shapes: rows [B'].

        `same_source` promises as many rows, each from the same encoder output as before: its keys and values then stay.
        """
        self.keys = [self._moved(key, rows) for key in self.keys]
        self.values = [self._moved(value, rows) for value in self.values]
        self.states = {slot: tuple(part.index_select(0, rows) for part in state) for slot, state in self.states.items()}
        if same_source:
            return
        self.source = {slot: tuple(part.index_select(0, rows) for part in parts) for slot, parts in self.source.items()}
        self.cross = {slot: (key.index_select(0, rows), value.index_select(0, rows))
                      for slot, (key, value) in self.cross.items()}

    def _moved(self, stored: Tensor, rows: Tensor) -> Tensor:
        """Copy the filled positions of the chosen rows; what is not filled yet need not be copied."""
        filled = stored[:, :, :self.length].index_select(0, rows)
        if rows.shape[0] != stored.shape[0]:
            stored = stored.new_zeros(rows.shape[0], *stored.shape[1:])
        stored[:, :, :self.length] = filled
        return stored

    @property
    def bytes(self) -> int:
        """Size of everything held."""
        tensors = [*self.keys, *self.values, *(tensor for pair in self.cross.values() for tensor in pair),
                   *(part for parts in (*self.states.values(), *self.source.values()) for part in parts)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
