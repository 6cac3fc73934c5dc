"""Funnel-Transformer's scores of distance and segment, for rows that are pooled or not.

Letters: B batch, H heads, G key-value heads, Q queries, K keys, E head width, D dim, R distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.kernels import repeat_heads
from saucier.parts.linear import Linear
from saucier.parts.norms import dropout


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows of equal distance stand, and their segments."""

    first: int
    """Place of the first row, which may be before the text."""
    step: int
    """Places from one row to the next."""
    segments: Tensor | None
    """[B, N]; None: all are of one."""


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
            near = [torch.arange(count, device=query.device) * one.step + one.first != self.first_place(one)
                    for count, one in ((query.shape[2], rows.queries), (key.shape[2], rows.keys))]
            added = added * (near[0][:, None] & near[1])
        content = torch.einsum("he,bhke->bhk", self.content * scale, repeat_heads(key, query.shape[1]))
        return added + content[:, :, None]

    def find_rows(self, queries: int, keys: int, context: Context) -> QueriesAndKeys:
        """Return what the layout says of the rows; without one, queries are the last of the text."""
        if isinstance(context.layout_state, QueriesAndKeys):
            return context.layout_state
        segments = context.inputs.get("token_type_ids")
        if segments is not None:
            segments = nn.functional.pad(segments, (keys - segments.shape[1], 0))
        own = None if segments is None else segments[:, keys - queries:]
        return QueriesAndKeys(Places(keys - queries, 1, own), Places(0, 1, segments))

    @staticmethod
    def first_place(rows: Places) -> int:
        """Return where the first token of a text is: the pooled rows begin so that its neighbour is at place 1."""
        return 1 - rows.step

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
        even = torch.arange(0, self.dim, 2, device=like.device, dtype=torch.float32)
        angles = distances[:, None] * (1 / self.config.base ** (even / self.dim))
        found = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :self.dim].to(like.dtype)
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
