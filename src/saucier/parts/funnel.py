"""Funnel-Transformer: its scores of distance and segment, and its layout of blocks, which pools between stages.

Letters: B batch, L length, P pooled length, D dim, H heads, G key-value heads, Q queries, K keys, E head width,
R distances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.kernels import repeat_heads
from saucier.parts.linear import Linear
from saucier.parts.norms import dropout
from saucier.parts.positions import sine_vectors


@dataclass(frozen=True, slots=True)
class Places:
    """The places of rows of equal distance, and their segments."""

    first: int
    """Place of the first row, which may be before the text."""
    step: int
    """Places from one row to the next."""
    segments: Tensor | None
    """[B, N]; None: all are of one."""

    @property
    def first_token(self) -> int:
        """Where the first token of a text is: the pooled rows begin so that its neighbour is at place 1."""
        return 1 - self.step


@dataclass(frozen=True, slots=True)
class QueriesAndKeys:
    """The rows of one attention."""

    queries: Places
    keys: Places


class PooledDistances(nn.Module):
    """What is added to the scaled scores of content: `u·k + (q + v)·W r + (q + s)·g`.

    r is the distance's vector, g one of two for another and the same segment. Source: Dai et al. 2020, appendix A.2.
    """

    def __init__(self, config: c.PooledDistances, projection: c.Projection, dim: int) -> None:
        """Build the map of the distances, the biases and the segments' vectors."""
        super().__init__()
        width, _, head = projection.widths(dim)
        self.config, self.dim = config, dim
        self.map = Linear(dim, width, bias=False)
        self.content, self.place, self.segment_bias = (nn.Parameter(torch.empty(projection.heads, head))
                                                       for _ in range(3))
        self.segments = nn.Parameter(torch.empty(2, projection.heads, head))

    def forward(self, query: Tensor, key: Tensor, scale: float, context: Context) -> Tensor:
        """Shapes: query [B, H, Q, E], key [B, G, K, E] -> [B, H, Q, K]."""
        query, rows = query * scale, self.find_rows(query.shape[2], key.shape[2], context)
        added = (self.score_distances(query + (self.place * scale)[:, None], key.shape[2], rows, context)
                 + self.score_segments(query + (self.segment_bias * scale)[:, None], rows, key.shape[2]))
        if self.config.separate_first:
            near = [torch.arange(count, device=query.device) * one.step + one.first != one.first_token
                    for count, one in ((query.shape[2], rows.queries), (key.shape[2], rows.keys))]
            added = added * (near[0][:, None] & near[1])
        content = torch.einsum("he,bhke->bhk", self.content * scale, repeat_heads(key, query.shape[1]))
        return added + content[:, :, None]

    def find_rows(self, queries: int, keys: int, context: Context) -> QueriesAndKeys:
        """Return what the layout says of the rows; without one, queries are the last of the text."""
        if context.layout_state is not None:
            return context.layout_state  # type: ignore[no-any-return]
        segments = context.inputs.get("token_type_ids")
        if segments is not None:
            segments = nn.functional.pad(segments, (keys - segments.shape[1], 0))
        own = None if segments is None else segments[:, keys - queries:]
        return QueriesAndKeys(Places(keys - queries, 1, own), Places(0, 1, segments))

    def score_distances(self, query: Tensor, keys: int, rows: QueriesAndKeys, context: Context) -> Tensor:
        """Score every query with every distance once, then pick. Shapes: query [B, H, Q, E] -> [B, H, Q, K]."""
        ratio, step = rows.queries.step // rows.keys.step, rows.keys.step
        start, count = rows.queries.first - rows.keys.first, query.shape[2]
        first, last = start + step * ratio * (count - 1), start - step * (keys - 1)
        vectors = context.once(("pooled distances", self.config, self.dim, first, last, step),
                               lambda: self.vectors(first, last, step, query))
        table = self.map(vectors).view(len(vectors), query.shape[1], -1).permute(1, 2, 0)
        back = ratio * torch.arange(count - 1, -1, -1, device=query.device)
        index = back[:, None] + torch.arange(keys, device=query.device)
        scores: Tensor = query @ table
        return scores.gather(-1, index.expand(*scores.shape[:2], -1, -1))

    def vectors(self, first: int, last: int, step: int, like: Tensor) -> Tensor:
        """Sines, then cosines, of the distances `first`, `first - step`, … `last`. Shapes: -> [R, D]."""
        distances = torch.arange(first, last - 1, -step, device=like.device, dtype=torch.float32)
        found = sine_vectors(distances, self.dim, self.config.base).to(like.dtype)
        return dropout(found, self.config.dropout) if self.training else found

    def score_segments(self, query: Tensor, rows: QueriesAndKeys, keys: int) -> Tensor:
        """Score queries by whether the key is of their segment. Shapes: query [B, H, Q, E] -> [B, H, Q, K]."""
        scores = torch.einsum("bhqe,she->bhqs", query, self.segments)
        ours, theirs = rows.queries.segments, rows.keys.segments
        if ours is None or theirs is None:
            return scores[..., 1:].expand(*scores.shape[:3], keys)
        any_ = self.config.shared_segment
        same = (ours[:, :, None] == theirs[:, None]) | (ours == any_)[:, :, None] | (theirs == any_)[:, None]
        return scores.gather(-1, same.long()[:, None].expand(*scores.shape[:3], keys))


class BlockRunner(Protocol):
    """A stack, as far as its layout needs it."""

    config: c.Stack

    def apply_block(self, number: int, x: Tensor, context: Context) -> Tensor:
        """Apply a block, the first being number 0."""


def run_funnel(stack: BlockRunner, x: Tensor, context: Context, record: list[Tensor] | None) -> Tensor:
    """Apply the blocks of all stages, and those after them. Shapes: x [B, L, D] -> [B, L, D], or [B, P, D] without any.

    Source: Dai et al. 2020, §2.2-2.3, arXiv:2006.03236.
    """
    layout = stack.config.layers
    assert isinstance(layout, c.Funnel), "Stack calls it for no other"
    if context.span.query_documents is not None:
        raise InputError("a funnel pools neighbours, whatever document they are of", where="documents",
                         remedy="give one text a row")
    places = Places(0, 1, context.inputs.get("token_type_ids"))
    whole = now = enter_length(context, places, x.shape[1], context.span.padding)
    states: list[Tensor] = []
    number = 0
    for stage, (size, turns) in enumerate(zip(layout.sizes, layout.repeats, strict=True)):
        for turn in range(size * turns):
            states.append(x)
            if turn == 0 and stage and x.shape[1] > 1 + layout.separate_first:
                x, now = enter_stage(stack, layout, number, x, now)
            else:
                x = stack.apply_block(number, x, now)
            number += 1
    if layout.after is not None:
        states.append(x)
        first = states[layout.sizes[0]]
        x = first + repeat_rows(layout, x, first.shape[1])
    for last in range(number, number + (layout.after or 0)):
        states.append(x)
        x = stack.apply_block(last, x, whole)
    if record is not None:
        record += states
    return x


def enter_length(context: Context, places: Places, length: int, padding: Tensor | None) -> Context:
    """Return the pass among rows of another length, for which masks and distances are made again."""
    span = replace(context.span, queries=length, keys=length, padding=padding)
    return replace(context, span=span, layout_state=QueriesAndKeys(places, places), made={}, key_rows=None)


def enter_stage(stack: BlockRunner, layout: c.Funnel, number: int, x: Tensor,
                context: Context) -> tuple[Tensor, Context]:
    """Pool the rows, and apply the first block of a stage to them. Shapes: x [B, L, D] -> [B, P, D].

    A pooled vector is padding where either of its two is, as published.
    """
    keys, short = context.layout_state.keys, pool_rows(layout, x, layout.pooling)
    segments = None if keys.segments is None else take_rows(layout, keys.segments)
    step = 2 * keys.step
    places = Places(1 - step if layout.separate_first else 0, step, segments)
    padding = context.span.padding
    if padding is not None:
        padding = pool_rows(layout, (~padding.bool())[..., None].to(x.dtype), "max")[..., 0] == 0
    then = enter_length(context, places, short.shape[1], padding)
    if layout.query_only:
        reads = replace(context, key_rows=x, layout_state=QueriesAndKeys(places, keys))
        return stack.apply_block(number, short, reads), then
    return stack.apply_block(number, short, then), then


def pool_rows(layout: c.Funnel, x: Tensor, kind: str) -> Tensor:
    """Make one vector of two neighbours, the first token left alone. Shapes: [B, L, D] -> [B, P, D]."""
    if layout.separate_first:
        x = torch.cat([x[:, :1], x[:, :-1] if layout.truncate else x], dim=1)
    pool = F.avg_pool1d if kind == "mean" else F.max_pool1d
    found: Tensor = pool(x.transpose(1, 2), 2, ceil_mode=True)
    return found.transpose(1, 2)


def take_rows(layout: c.Funnel, x: Tensor) -> Tensor:
    """Return the first of every two neighbours, the first token left alone. Shapes: [B, L] -> [B, P]."""
    if layout.separate_first:
        x = torch.cat([x[:, :1], x[:, :-1] if layout.truncate else x], dim=1)
    return x[:, ::2]


def repeat_rows(layout: c.Funnel, x: Tensor, length: int) -> Tensor:
    """Repeat pooled vectors for the tokens that they were made of, zeros where tokens were cut off.

    Shapes: [B, P, D] -> [B, L, D]. Source: Dai et al. 2020, §2.3.
    """
    stride = 2 ** (len(layout.sizes) - 1)
    alone = int(layout.separate_first and stride > 1)
    found = x[:, alone:].repeat_interleave(stride, dim=1)
    found = F.pad(found, (0, 0, 0, stride - 1)) if alone and layout.truncate else found
    return torch.cat([x[:, :alone], found[:, :length - alone]], dim=1)
