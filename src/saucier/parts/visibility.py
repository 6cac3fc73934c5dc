"""From a visibility config and a batch to the mask that attention reads, made late and once for all layers.

Letters: B batch, Q queries, K keys, H heads. True = may attend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from saucier import config as c
from saucier.config.visibility import repeats
from saucier.errors import InputError
from saucier.parts.global_tokens import global_tokens
from saucier.parts.permutation import streams
from saucier.parts.random_blocks import Draw, random_counts

ANYWHERE = torch.iinfo(torch.int64).min
"""The document of keys that belong to none, and that all may see."""


@dataclass(slots=True)
class Span:
    """Where the queries and keys of one attention stand: what a mask is made from, apart from the visibility.

    Queries are positions `start … start+queries-1` of the `keys` positions of the row.
    """

    queries: int
    keys: int
    start: int
    device: torch.device
    padding: Tensor | None = None
    """[B, K], True where the key is a real token."""
    query_documents: Tensor | None = None
    """[B, Q], the document of each query; attention stays within a document."""
    key_documents: Tensor | None = None
    """[B, K]."""
    prefix: Tensor | None = None
    """[B], length of the prefix that all may see."""
    ids: Tensor | None = None
    """[B, Q], the tokens, where they are known."""
    named: Tensor | None = None
    """[B, K], True where the batch names a token global."""
    draw: Draw | None = None
    """For whom random blocks are drawn; None outside training."""
    memory: int = 0
    """Keys before the text that come from earlier segments."""
    visible: Tensor | None = None
    """[B, L, L], False where the batch hides a key from a query."""
    targets: Tensor | None = None
    """[B, P], the places that rows behind the queries ask about."""
    heads: int = 1
    """Heads of the attention that asks, where it tells them apart."""
    starts_real: bool = False
    """Known to have real tokens first in every row, so that padding leaves no query without a key."""

    def of_row(self, row: int) -> Span:
        """Return the span of one row alone."""
        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[row if len(x) > 1 else 0][None]

        return replace(self, padding=cut(self.padding), query_documents=cut(self.query_documents),
                       key_documents=cut(self.key_documents), prefix=cut(self.prefix), ids=cut(self.ids),
                       named=cut(self.named), visible=cut(self.visible), targets=cut(self.targets))


@dataclass(slots=True)
class Mask:
    """What an attention may see: either by the flag alone (no tensor is made), or by a tensor."""

    causal: bool = False
    """Queries and keys are the same positions, and each query sees no later key."""
    allowed: Tensor | None = None
    """Boolean, broadcasts to [B, H, Q, K]; never set together with `causal`."""
    whole: bool = True
    """Whether every query sees at least one key; padding on the left can take that away."""
    times: Tensor | None = None
    """How often each key counts for a query, at least 1, where not once; broadcasts to [B, H, Q, K]."""
    device: torch.device | None = None
    made: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def addend(self, keys: int, dtype: torch.dtype) -> Tensor | None:
        """Return the mask as a tensor to add to the scores, 0 or -inf, made once; None when all is visible."""
        if not self.causal and self.allowed is None:
            return None
        if dtype not in self.made:
            allowed = lower(keys, self.device) if self.allowed is None else self.allowed
            self.made[dtype] = torch.zeros(allowed.shape, dtype=dtype,
                                           device=allowed.device).masked_fill_(~allowed, float("-inf"))
        return self.made[dtype]


def lower(length: int, device: torch.device | None) -> Tensor:
    """The causal triangle. Shapes: -> [L, L]."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def materialize(visibility: c.Visibility, span: Span) -> Mask:
    """Return the mask of a visibility over a span, as a flag where that suffices."""
    visibility = resolved(visibility, span.keys)
    if isinstance(visibility, c.Prefix) and span.queries == 1 and span.start == span.keys - 1:
        visibility = c.Causal()  # the last position sees all, whatever the prefix
    whole = span.start == 0 and span.queries == span.keys
    unmasked = span.padding is None and span.query_documents is None
    if unmasked and isinstance(visibility, c.Causal) and (span.queries == 1 or whole):
        return Mask(causal=span.queries > 1, device=span.device)
    allowed, times = pattern(visibility, span), None
    if allowed is not None and allowed.dtype != torch.bool:
        allowed, times = allowed > 0, allowed.clamp(min=1)
    if span.padding is not None:
        allowed = both(allowed, span.padding[:, None, None, :])
    if span.query_documents is not None and span.key_documents is not None:
        same = within_documents(span.query_documents[:, :, None], span.key_documents[:, None, :])
        allowed = both(allowed, same[:, None])
    if c.permutes(visibility):
        allowed = streams(allowed, span.visible, span.start, span.queries, span.targets)
    return Mask(allowed=allowed, whole=sees_itself(visibility) and finds_a_key(span), times=times, device=span.device)


def finds_a_key(span: Span) -> bool:
    """Say whether padding and documents leave each query, of those that see themselves, some key.

    A padded place is in no document, and a target's document need not have a source in its row.
    """
    if span.query_documents is None:
        return span.padding is None or span.starts_real
    return span.padding is None and span.query_documents is span.key_documents


def within_documents(queries: Tensor, keys: Tensor) -> Tensor:
    """Say whether keys belong to the document of a query, or to none. Shapes: broadcast together."""
    return (queries == keys) | (keys == ANYWHERE)


def resolved(visibility: c.Visibility, keys: int) -> c.Visibility:
    """Return what a visibility that depends on the input's length is for so many keys."""
    while isinstance(visibility, c.Beyond):
        visibility = visibility.inner if keys > visibility.length else c.Full()
    return visibility


def sees_itself(visibility: c.Visibility) -> bool:
    """Say whether every query sees at least its own key."""
    match visibility:
        case c.Global() | c.GlobalBlocks() | c.RandomBlocks() | c.Permutation() | c.Columns():
            return False
        case c.And(terms=terms) | c.ByHead(terms=terms):
            return all(sees_itself(term) for term in terms)
        case c.Or(terms=terms) | c.Plus(terms=terms):
            return any(sees_itself(term) for term in terms)
        case c.Beyond(inner=inner):
            return sees_itself(inner)
        case _:
            return True


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Conjunction where None allows everything."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def pattern(visibility: c.Visibility, span: Span) -> Tensor | None:
    """Return the visibility itself as a tensor that broadcasts to [B, H, Q, K]; None when all is visible.

    It is boolean, or holds how often each key counts where that may be more than once.
    """
    if isinstance(visibility, c.Full | c.Permutation):
        return None
    queries = torch.arange(span.start, span.start + span.queries, device=span.device)[:, None]
    keys = torch.arange(span.keys, device=span.device)[None, :]
    return (counted_pairs if repeats(visibility) else allowed_pairs)(visibility, queries, keys, span)


def counted_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate the algebra with repetitions: a sum adds, `&` multiplies, `|` takes the larger.

    Shapes: queries [Q, 1], keys [1, K] or [H, 1, K] -> broadcasts to [B, H, Q, K], int16.
    """
    def counted(terms: tuple[c.Visibility, ...]) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(counted_pairs(term, queries, keys, span) for term in terms)))

    match visibility:
        case c.RandomBlocks(size=size):
            counts = random_counts(visibility, blocks_of(span, size), span.draw).to(queries.device)
            heads = torch.arange(len(counts), device=queries.device)[:, None, None]
            return counts[heads, queries // size, keys // size][None]
        case c.Plus(terms=terms):
            return counted(terms).sum(0, dtype=torch.int16)
        case c.And(terms=terms):
            return counted(terms).prod(0, dtype=torch.int16)
        case c.Or(terms=terms):
            return counted(terms).amax(0)
        case c.ByHead(terms=terms):
            return by_heads([counted_pairs(term, queries, keys, span) for term in terms], span)
        case c.Beyond():
            return counted_pairs(resolved(visibility, span.keys), queries, keys, span)
        case _:
            return allowed_pairs(visibility, queries, keys, span).to(torch.int16)


def blocks_of(span: Span, size: int) -> int:
    """Return how many blocks a row has, the last one shorter perhaps."""
    return -(-span.keys // size)


def allowed_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate the algebra on places of a row, all of them or some.

    Shapes: queries [Q, 1], keys [1, K] or [H, 1, K] -> broadcasts to [B, 1 or H, Q, K].
    """
    match visibility:
        case c.Full() | c.Permutation():
            return torch.ones(1, 1, len(queries), keys.shape[-1], dtype=torch.bool, device=span.device)
        case c.Prefix() if span.prefix is None and span.queries == 1 and span.start == span.keys - 1:
            return by_place(keys <= queries)  # the last position sees all, whatever the prefix
        case c.Prefix():
            if span.prefix is None:
                raise InputError("a prefix visibility needs to know the prefix", where="prefix_length",
                                 remedy="give prefix_length, one number for each row")
            return by_place(keys <= queries) | (by_place(keys) < span.prefix[:, None, None, None])
        case c.Global(otherwise=otherwise):
            tokens = global_tokens(otherwise, span)
            return by_row(tokens[:, queries]) | by_row(tokens[:, keys])
        case c.RandomBlocks() | c.Plus():
            return counted_pairs(visibility, queries, keys, span) > 0
        case c.Beyond():
            return allowed_pairs(resolved(visibility, span.keys), queries, keys, span)
        case c.And(terms=terms):
            parts = [allowed_pairs(term, queries, keys, span) for term in terms]
            return torch.stack(torch.broadcast_tensors(*parts)).all(0)
        case c.Or(terms=terms):
            parts = [allowed_pairs(term, queries, keys, span) for term in terms]
            return torch.stack(torch.broadcast_tensors(*parts)).any(0)
        case c.ByHead(terms=terms):
            return by_heads([allowed_pairs(term, queries, keys, span) for term in terms], span)
        case _:
            return by_place(placed_pairs(visibility, queries, keys, span))


def placed_pairs(visibility: c.Visibility, queries: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Evaluate a term that depends on places alone. Shapes: queries [Q, 1], keys [.., 1, K] -> [.., Q, K]."""
    match visibility:
        case c.SameLength():
            return queries - keys <= span.memory
        case c.Causal():
            return keys <= queries
        case c.Window(size=size):
            return (queries - keys).abs() < size
        case c.Dilated(size=size, dilation=step):
            apart = (queries - keys).abs()
            return (apart % step == 0) & (apart < size * step)
        case c.Strided(stride=step):
            return (queries - keys) % step == 0
        case c.Columns(stride=step, count=count):
            return (keys % step >= step - count).expand(*keys.shape[:-2], len(queries), -1)
        case c.BlockWindow(size=size, reach=reach):
            return (queries // size - keys // size).abs() <= reach
        case c.GlobalBlocks(size=size):
            ends = torch.tensor([0, blocks_of(span, size) - 1], device=span.device)
            return torch.isin(queries // size, ends) | torch.isin(keys // size, ends)
    raise TypeError(visibility.kind)


def by_place(found: Tensor) -> Tensor:
    """Say the same of every row, and of every head where it is not by head. Shapes: [Q, K] or [H, Q, K] -> 4 axes."""
    return found[(None,) * (4 - found.dim())]


def by_heads(terms: list[Tensor], span: Span) -> Tensor:
    """Give each term to its share of the heads. Shapes: each broadcasts to [B, 1 or H, Q, K] -> [B, H, Q, K]."""
    share = max(1, span.heads // len(terms))
    parts = [part if part.shape[1] == 1 else part[:, number * share:(number + 1) * share]
             for number, part in enumerate(terms)]
    rows, queries, keys = (max(part.shape[axis] for part in parts) for axis in (0, 2, 3))
    return torch.cat([part.expand(rows, share, queries, keys) for part in parts], dim=1)


def by_row(found: Tensor) -> Tensor:
    """Say the same of every head, where it is not by head. Shapes: [B, Q, K] or [B, H, Q, K] -> 4 axes."""
    return found if found.dim() == 4 else found[:, None]
