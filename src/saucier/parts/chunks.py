"""Attention within chunks of neighbouring positions, and what chunks need to know of their positions.

Letters: B batch, H heads, L length, N chunks, C positions in a chunk, W keys in its neighbourhood, E head width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.dropout import dropout
from saucier.parts.ragged import Ragged
from saucier.parts.visibility import both


@dataclass(slots=True)
class Places:
    """What is known of positions, in any arrangement [B or 1, H or 1, ...]."""

    number: Tensor
    """Where they stand in their row."""
    real: Tensor | None
    """True where a token is real; None when all are."""
    document: Tensor | None
    """The document of each; None where rows are not packed documents."""

    def each(self, change: Callable[[Tensor], Tensor]) -> Places:
        """Arrange all of it anew."""
        found = [None if x is None else change(x) for x in (self.real, self.document)]
        return Places(change(self.number), *found)

    def padded(self, length: int) -> Places:
        """Add positions without a token at the end."""
        missing = length - self.number.shape[-1]
        if not missing:
            return self
        real = torch.ones_like(self.number, dtype=torch.bool) if self.real is None else self.real
        document = None if self.document is None else F.pad(self.document, (0, missing), value=-1)
        number = torch.arange(length, device=self.number.device)[None, None]
        return Places(number, F.pad(real, (0, missing), value=False), document)


def places(context: Context, keys: int) -> Places:
    """Return the positions of a pass's keys, in order. Shapes: -> [B or 1, 1, K]."""
    real, documents = context.real_keys(), context.span.key_documents
    return Places(torch.arange(keys, device=context.span.device)[None, None],
                  None if real is None else real[:, None], None if documents is None else documents[:, None])


def visible(queries: Places, keys: Places, *, causal: bool) -> Tensor | None:
    """Return which keys may be seen; None when all may. Shapes: [..., Q] and [..., K] -> [..., Q, K]."""
    allowed = None if keys.real is None else keys.real[..., None, :]
    if queries.document is not None and keys.document is not None:
        allowed = both(allowed, queries.document[..., None] == keys.document[..., None, :])
    if causal:
        allowed = both(allowed, queries.number[..., None] >= keys.number[..., None, :])
    return allowed


def steps_of(chunks: c.Chunks, count: int) -> list[int]:
    """Return how far the chunks stand that a chunk sees, on a ring of so many."""
    return [step if abs(step) < count else 0 for step in range(-chunks.before, chunks.after + 1)]


def adjacent(x: Tensor, chunks: c.Chunks) -> Tensor:
    """Put the chunks that each chunk sees behind each other, in a ring. Shapes: [B, H, N, C, ...] -> [B, H, N, W, ...].

    The published code leaves the ring where it would have to go around it: then a chunk sees itself once more.
    """
    steps = steps_of(chunks, x.shape[2])
    return torch.cat([x.roll(-step, 2) for step in steps], dim=3) if len(steps) > 1 else x


def visible_softmax(scores: Tensor, allowed: Tensor | None, context: Context) -> Tensor:
    """Softmax over the visible keys; a query that sees nothing gets zeros. Shapes: [..., Q, K] -> the same."""
    if allowed is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~allowed, 0.0)
    if context.want_weights:
        context.attentions.append(weights)
    return weights


def lengthened(x: Tensor, length: int) -> Tensor:
    """Add zeros behind the positions. Shapes: [B, H, L, E] -> [B, H, length, E]."""
    return F.pad(x, (0, 0, 0, length - x.shape[2])) if length > x.shape[2] else x


def by_chunks(query: Tensor, key: Tensor, value: Tensor, attention: c.SelfAttention, context: Context, *,
              rate: float = 0.0) -> Tensor:
    """Mix the values of neighbouring chunks. Shapes: query [B, H, Q, E], key and value [B, H, K, E] -> [B, H, Q, E].

    The queries are scaled already; `rate` is the dropout.
    Source: Kitaev et al. 2020, §4 and code release, arXiv:2001.04451.
    """
    chunks, causal = attention.kernel, isinstance(attention.visibility, c.Causal)
    assert isinstance(chunks, c.Chunks), "the caller's choice"
    length, known = key.shape[2], places(context, key.shape[2])
    if query.shape[2] < length or length <= chunks.length:
        asking = known.each(lambda x: x[..., length - query.shape[2]:])
        allowed = visible(asking, known, causal=causal)
        if length > chunks.length:  # from a cache: only the neighbourhood of the queries' chunks
            apart = known.number[..., None, :] // chunks.length - asking.number[..., None] // chunks.length
            allowed = both(allowed, (apart >= -chunks.before) & (apart <= chunks.after))
        weights = visible_softmax(query @ key.transpose(-1, -2), allowed, context)
    else:
        whole = chunks.padded(length)
        known = known.padded(whole).each(lambda x: x.unflatten(-1, (-1, chunks.length)))
        query, key, value = (lengthened(x, whole).unflatten(2, (-1, chunks.length)) for x in (query, key, value))
        key, value = adjacent(key, chunks), adjacent(value, chunks)
        allowed = visible(known, known.each(lambda x: adjacent(x, chunks)), causal=causal)
        weights = visible_softmax(query @ key.transpose(-1, -2), allowed, context)
    mixed = dropout(weights, rate) @ value
    return mixed if mixed.dim() == 4 else mixed.flatten(2, 3)[:, :, :length]


def in_rows(mix: Callable[..., Tensor], tensors: tuple[Tensor, ...], layout: Ragged | None) -> Tensor:
    """Apply `mix` to [B, H, L, E] tensors, packed rows padded again for it. Shapes: -> as the first."""
    if layout is None:
        return mix(*tensors)
    rows = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in tensors)
    return layout.pack(mix(*rows).transpose(1, 2)).transpose(1, 2)
