"""The memory from one segment to the next (Transformer-XL), and the second stream of queries (XLNet).

Rows of a stack are [memory; text; queries]. Only text has residuals and queries of its own; memory and text give keys
and values; queries only ask.

Letters: B batch, M memory, L length, P queries, H heads, E head width, D dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.devices import is_traced
from saucier.errors import InputError
from saucier.parts.norms import dropout


@dataclass(slots=True)
class Segment:
    """What a pass holds in addition where its stack has a memory or a second stream."""

    memory: c.SegmentMemory | None
    recalled: tuple[Tensor, ...] | None
    """[B, M, D] for each block: the memory of earlier segments."""
    remembered: list[Tensor] | None
    """[M, B, D] for each block: what the next segment is to remember; None where nobody asks."""
    query_places: Tensor | None
    """[B, P], the places that the second stream asks about."""
    wide: bool
    """Whether the second stream asks about every place, so that there are weights of all: attention is recorded."""
    past: Tensor | None = None
    """[B, M, D], the memory of the block that runs."""

    def copied(self) -> Segment:
        """Return the same, which remembers separately."""
        return replace(self, remembered=None if self.remembered is None else [])

    @property
    def length(self) -> int:
        """Positions that earlier segments left in the memory."""
        return 0 if not self.recalled else self.recalled[0].shape[1]

    @property
    def query_count(self) -> int:
        """Rows of the second stream, which come after the text."""
        return 0 if self.query_places is None else self.query_places.shape[1]

    def targets(self, length: int) -> Tensor | None:
        """Return the places that masks and positions of the second stream are made for. Shapes: -> [B, P or L]."""
        if self.query_places is None or not self.wide:
            return self.query_places
        return torch.arange(length, device=self.query_places.device).expand(len(self.query_places), -1)

    def streams(self, x: Tensor) -> list[Tensor]:
        """Return the rows of the text, and those of a second stream. Shapes: x [B, L + P, D]."""
        return list(x.split([x.shape[1] - self.query_count, self.query_count], dim=1)) if self.query_count else [x]

    def enter(self, number: int, x: Tensor) -> None:
        """Set what a block remembers, and keep what it reads for the next segment. Shapes: x [B, L + P, D]."""
        self.past = None if self.recalled is None else self.recalled[number]
        if self.remembered is not None and self.memory is not None:
            new = self.streams(x)[0][:, :self.memory.reuse]
            joined = new if self.past is None else torch.cat([self.past, new], dim=1)
            kept = 0 if self.memory.length is None else -self.memory.length
            self.remembered.append(joined[:, kept:].detach().transpose(0, 1))

    def prepend(self, x: Tensor, inner: nn.Module) -> Tensor:
        """Put a block's memory before the rows that its attention reads. Shapes: x [B, L, D] -> [B, M + L, D]."""
        if self.past is None or not getattr(inner, "reads_past", False):
            return x
        return torch.cat([self.past, x], dim=1)

    def split(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Leave each row what its part has: no queries for the memory, no keys and values for the second stream.

        Shapes: each [B, H, M + L + P, E] -> queries [B, H, L + P, E], keys and values [B, G, M + L, E].
        """
        past = 0 if self.past is None else self.past.shape[1]
        rows, end = query.shape[2] - self.query_count, key.shape[2] - self.query_count
        query, key, value = query[:, :, past:], key[:, :, :end], value[:, :, :end]
        if self.query_places is None or not self.wide:
            return query, key, value
        text, queries = query.split([rows - past, self.query_count], dim=2)
        at = self.query_places[:, None, :, None].expand_as(queries)
        return torch.cat([text, torch.zeros_like(text).scatter(2, at, queries)], dim=2), key, value

    def rejoin(self, mixed: Tensor) -> Tensor:
        """Undo the widening of `split`, made for weights of every place. Shapes: [B, H, 2·L, E] -> [B, H, L + P, E]."""
        if self.query_places is None or not self.wide:
            return mixed
        text, places = mixed.chunk(2, dim=2)
        return torch.cat([text, places.take_along_dim(self.query_places[:, None, :, None], 2)], dim=2)


def begin_segment(stack: c.Stack, inputs: Mapping[str, Any], like: Tensor, *, cached: bool, training: bool,
                  wide: bool) -> Segment:
    """Return what a pass over texts has of the stack's memory and second stream. Shapes: like [B, D].

    A memory is given where the call says so (`use_mems`), or else the config. Raises `InputError` for a memory that is
    not this model's or goes with a cache or packed documents, and for places that are none.
    """
    memory = stack.memory
    recalled = None if memory is None else recall_memory(stack, memory, inputs.get("mems"), like)
    if recalled is not None and (cached or "documents" in inputs):
        raise InputError("a memory goes neither with a key-value cache nor with packed documents", where="mems",
                         remedy="give mems alone, and one text a row")
    kept = memory is not None and inputs.get("use_mems", memory.training if training else memory.evaluation)
    return Segment(memory, recalled, [] if kept else None, find_query_positions(inputs.get("target_mapping")), wide)


def recall_memory(stack: c.Stack, memory: c.SegmentMemory, mems: Sequence[Tensor] | None,
                  like: Tensor) -> tuple[Tensor, ...] | None:
    """Return what each block remembers before this segment, [B, M, D]; `like` [B, D] has the right format and place."""
    layers, (rows, dim) = len(stack.blocks()), like.shape
    if mems is not None:
        if len(mems) != layers or any(past.dim() != 3 or past.shape[1:] != (rows, dim) for past in mems):
            raise InputError(f"{len(mems)} tensors of shapes {sorted({tuple(past.shape) for past in mems})}",
                             where="mems", remedy=f"give {layers} of [memory, {rows}, {dim}]")
        return tuple(past.transpose(0, 1).to(like.dtype) for past in mems)
    if memory.start.kind == "nothing":
        return None
    assert memory.length is not None, "check() refuses zeros without a length"
    return (like.new_zeros(rows, memory.length, dim),) * layers


class QueryVector(nn.Module):
    """The vector that rows of the second stream begin as. Source: Yang et al. 2019, §2.3, eq 3–4."""

    def __init__(self, config: c.QueryVector, dim: int) -> None:
        """Build the vector [D]."""
        super().__init__()
        self.rate = config.dropout
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor, count: int) -> Tensor:
        """Put this number of rows after the text. Shapes: x [B, L, D] -> [B, L + P, D]."""
        rows = self.weight.to(x.dtype).expand(len(x), count, -1)
        return torch.cat([x, dropout(rows, self.rate) if self.training else rows], dim=1)


def find_query_positions(mapping: Tensor | None) -> Tensor | None:
    """Return the place that each row of the second stream asks about. Shapes: [B, P, L] -> [B, P].

    Raises `InputError` for a row that does not hold a single 1.
    """
    if mapping is None:
        return None
    if not is_traced() and not bool((((mapping == 1).sum(-1) == 1) & ((mapping != 0).sum(-1) == 1))
                                                      .all()):
        raise InputError("a row of target_mapping is not a single 1 among zeros", where="target_mapping",
                         remedy="let every row ask about one place")
    return mapping.argmax(-1)
