"""Reformer's attention: within chunks of neighbouring positions, and between positions that hash alike.

For hashing queries and keys are one map, and rows are sorted by bucket.

Letters: B batch, H heads, L length, R rounds, N chunks, C positions in a chunk, W keys in its neighbourhood,
E head width, D dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.context import Context, KernelCall
from saucier.parts.kernels import masked_softmax
from saucier.parts.linear import Linear
from saucier.parts.masks import intersect
from saucier.parts.norms import dropout


@dataclass(slots=True)
class KeyPositions:
    """What is known of positions, in any arrangement [B or 1, H or 1, ...]."""

    number: Tensor
    """Where they stand in their row."""
    real: Tensor | None
    """True where a token is real; None when all are."""
    document: Tensor | None
    """The document of each; None where rows are not packed documents."""

    def each(self, change: Callable[[Tensor], Tensor]) -> KeyPositions:
        """Arrange all of it again."""
        found = [None if x is None else change(x) for x in (self.real, self.document)]
        return KeyPositions(change(self.number), *found)

    def padded(self, length: int) -> KeyPositions:
        """Add positions without a token at the end."""
        missing = length - self.number.shape[-1]
        if not missing:
            return self
        real = torch.ones_like(self.number, dtype=torch.bool) if self.real is None else self.real
        document = None if self.document is None else F.pad(self.document, (0, missing), value=-1)
        number = torch.arange(length, device=self.number.device)[None, None]
        return KeyPositions(number, F.pad(real, (0, missing), value=False), document)


def find_key_positions(context: Context, keys: int) -> KeyPositions:
    """Return the positions of a pass's keys, in order. Shapes: -> [B or 1, 1, K]."""
    real, documents = context.real_keys(), context.span.key_documents
    return KeyPositions(torch.arange(keys, device=context.span.device)[None, None],
                        None if real is None else real[:, None], None if documents is None else documents[:, None])


def mask_keys(queries: KeyPositions, keys: KeyPositions, *, causal: bool) -> Tensor | None:
    """Return which keys may be seen; None when all may. Shapes: [..., Q] and [..., K] -> [..., Q, K]."""
    allowed = None if keys.real is None else keys.real[..., None, :]
    if queries.document is not None and keys.document is not None:
        allowed = intersect(allowed, queries.document[..., None] == keys.document[..., None, :])
    if causal:
        allowed = intersect(allowed, queries.number[..., None] >= keys.number[..., None, :])
    return allowed


def chunk_offsets(chunks: c.Chunks, count: int) -> list[int]:
    """Return how far away the chunks are that a chunk sees, on a ring of `count` chunks."""
    return [step if abs(step) < count else 0 for step in range(-chunks.before, chunks.after + 1)]


def gather_adjacent(x: Tensor, chunks: c.Chunks) -> Tensor:
    """Join the chunks that each chunk sees, in a ring. Shapes: [B, H, N, C, ...] -> [B, H, N, W, ...].

    The published code leaves the ring where it would have to go around it: then a chunk sees itself once more.
    """
    steps = chunk_offsets(chunks, x.shape[2])
    return torch.cat([x.roll(-step, 2) for step in steps], dim=3) if len(steps) > 1 else x


def visible_softmax(scores: Tensor, allowed: Tensor | None, context: Context) -> Tensor:
    """Softmax over the visible keys; a query that sees nothing gets zeros. Shapes: [..., Q, K] -> the same."""
    weights = masked_softmax(scores, allowed)
    if context.want_weights:
        context.attentions.append(weights)
    return weights


def pad_length(x: Tensor, length: int) -> Tensor:
    """Add zeros after the positions. Shapes: [B, H, L, E] -> [B, H, length, E]."""
    return F.pad(x, (0, 0, 0, length - x.shape[2])) if length > x.shape[2] else x


def attend_in_chunks(query: Tensor, key: Tensor, value: Tensor, call: KernelCall) -> Tensor:
    """Mix the values of neighbouring chunks. Shapes: query [B, H, Q, E], key and value [B, H, K, E] -> [B, H, Q, E].

    Source: Kitaev et al. 2020, §4 and code release, arXiv:2001.04451.
    """
    chunks, context, causal = call.kernel, call.context, isinstance(call.config.visibility, c.Causal)
    query, length, known = query * call.scale, key.shape[2], find_key_positions(context, key.shape[2])
    if query.shape[2] < length or length <= chunks.length:
        asking = known.each(lambda x: x[..., length - query.shape[2]:])
        allowed = mask_keys(asking, known, causal=causal)
        if length > chunks.length:  # from a cache: only the neighbourhood of the queries' chunks
            offset = known.number[..., None, :] // chunks.length - asking.number[..., None] // chunks.length
            allowed = intersect(allowed, (offset >= -chunks.before) & (offset <= chunks.after))
        weights = visible_softmax(query @ key.transpose(-1, -2), allowed, context)
    else:
        whole = chunks.padded(length)
        known = known.padded(whole).each(lambda x: x.unflatten(-1, (-1, chunks.length)))
        query, key, value = (pad_length(x, whole).unflatten(2, (-1, chunks.length)) for x in (query, key, value))
        key, value = gather_adjacent(key, chunks), gather_adjacent(value, chunks)
        allowed = mask_keys(known, known.each(lambda x: gather_adjacent(x, chunks)), causal=causal)
        weights = visible_softmax(query @ key.transpose(-1, -2), allowed, context)
    mixed = dropout(weights, call.rate) @ value
    return mixed if mixed.dim() == 4 else mixed.flatten(2, 3)[:, :, :length]


SELF, HIDDEN = -1e5, -1e9
"""Scores of a position for itself, which it sees only where nothing else is visible, and of what it may not see."""


def draw_hash_directions(kernel: c.Hashing, shape: tuple[int, int, int], factors: tuple[int, ...],
                         device: torch.device) -> Tensor:
    """Draw what positions are hashed by; from a seed, the same on every device.

    Shapes: shape (H, E, R) -> [H, E, R, half the sum of the factors].
    """
    whole = (*shape, sum(factors) // 2)
    if kernel.seed is None:
        return torch.randn(whole, device=device)
    return torch.randn(whole, generator=torch.Generator().manual_seed(kernel.seed)).to(device)


def hash_vectors(vectors: Tensor, kernel: c.Hashing, ways: Tensor, length: int) -> Tensor:
    """Return the bucket of every position in every round.

    A bucket is the direction, or its opposite, that a vector points to most; factors are hashed separately.
    Shapes: vectors [B, H, L, E], ways as `directions` draws them -> [B, H, R, L].
    Source: Kitaev et al. 2020, §2, arXiv:2001.04451 (S eq 98).
    """
    factors = kernel.factors(length)
    turned = torch.einsum("bhle,herf->bhrlf", vectors.detach(), ways.to(vectors.dtype))
    found, count = torch.zeros(turned.shape[:-1], dtype=torch.long, device=vectors.device), 1
    for part, factor in zip(turned.split([factor // 2 for factor in factors], dim=-1), factors, strict=True):
        found = found + count * torch.cat([part, -part], dim=-1).argmax(-1)
        count *= factor
    return found


def widen_format(x: Tensor) -> Tensor:
    """Return numbers of 32 bits at least: sums of exponents are made in no fewer."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def normalize_keys(x: Tensor) -> Tensor:
    """Vectors of length 1. Shapes: [..., E] -> the same. Source: Kitaev et al. 2020, §2, shared-QK."""
    size = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) / math.sqrt(x.shape[-1])
    return x * size


def shared_scores(query: Tensor, vectors: Tensor, asking: KeyPositions, known: KeyPositions, *, causal: bool) -> Tensor:
    """Scores of queries for keys of length 1. Shapes: query [..., Q, E], vectors [..., K, E] -> [..., Q, K]."""
    scores = widen_format(query @ normalize_keys(vectors).transpose(-1, -2))
    allowed = mask_keys(asking, known, causal=causal)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, HIDDEN)
    return scores.masked_fill(asking.number[..., None] == known.number[..., None, :], SELF)


def take_rows(x: Tensor, order: Tensor) -> Tensor:
    """Return rows in another order: whole rows are copied, which costs less than `gather`, above all backwards.

    Shapes: x [..., K, E], order [..., S] -> [..., S, E].
    """
    rows = x.shape[-2]
    first = torch.arange(0, x.numel() // x.shape[-1], rows, device=x.device).view(*order.shape[:-1], 1)
    found = x.reshape(-1, x.shape[-1]).index_select(0, (order + first).flatten())
    return found.view(*order.shape, x.shape[-1])


class HashedAttention(nn.Module):
    """Attention between positions that hash alike. Source: Kitaev et al. 2020, §2, arXiv:2001.04451 (S eq 96–102)."""

    def __init__(self, config: c.SelfAttention, dim: int) -> None:
        """Build one map for the vectors that are queries and keys, and for values, in this order of rows."""
        super().__init__()
        self.config = config
        assert isinstance(config.kernel, c.Hashing), "MIXERS calls it for no other"
        self.kernel = config.kernel
        self.causal = isinstance(config.visibility, c.Causal)
        self.width, _, self.head_dim = config.projection.widths(dim)
        self.qkv = Linear(dim, 2 * self.width, bias=config.projection.bias)
        self.out = Linear(self.width, dim, bias=config.projection.output_bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        number = context.next_slot("self_attention")
        vectors, value = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                          for part in self.qkv(x).split(self.width, dim=-1))
        if context.cache is not None and context.span.start:
            vectors, value = context.cache.extend(number, vectors, value)
            mixed = torch.cat([self.newest(vectors[:, :, :end], value[:, :, :end], context)
                               for end in range(context.span.start + 1, context.span.keys + 1)], dim=2)
        else:
            if context.cache is not None:
                context.cache.extend(number, vectors, value)
            mixed = context.unpacked(partial(self.whole, context=context), vectors, value)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def rounds(self, context: Context) -> int:
        """Return how often positions are hashed: as often as the batch asks for, or as the config says."""
        return context.inputs.get("num_hashes") or self.kernel.rounds

    def mix(self, scores: Tensor, value: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return mixed values, and how much attention was found. Shapes: -> [..., Q, E] and [..., Q]."""
        highest = scores.detach().amax(-1, keepdim=True)
        weights = (scores - highest).exp()
        found = weights.sum(-1, keepdim=True).log() + highest
        weights = weights * (highest - found).exp()  # one exponential for all; `found` rounded, as published
        found = found[..., 0]
        if context.want_weights:
            context.attentions.append(weights)
        rate = self.kernel.chunks.dropout if self.training else 0.0
        return dropout(weights.to(value.dtype), rate) @ value, found

    def whole(self, vectors: Tensor, value: Tensor, context: Context) -> Tensor:
        """Attention of a whole input to itself. Shapes: vectors and value [B, H, L, E] -> [B, H, L, E]."""
        chunks, length = self.kernel.chunks, vectors.shape[2]
        known = find_key_positions(context, length)
        if length <= chunks.length:
            scores = shared_scores(vectors, vectors, known, known, causal=self.causal)
            return self.mix(scores, value, context)[0]
        padded, rounds = chunks.padded(length), self.rounds(context)
        known = known.padded(padded)
        order = self.sorted(pad_length(vectors, padded), known, context)  # [B, H, R, L]
        flat = order.flatten(2)

        def arranged(x: Tensor) -> Tensor:
            """Shapes: [B, H, L, ...] -> [B, H, N, C, ...]."""
            x = x.expand(*flat.shape[:2], *x.shape[2:])
            made: Tensor = take_rows(x, flat) if x.dim() > 3 else x.gather(2, flat)
            return made.unflatten(2, (-1, chunks.length))  # type: ignore[no-any-return]

        asking = known.each(arranged)
        query, mixing = arranged(pad_length(vectors, padded)), arranged(pad_length(value, padded))
        scores = shared_scores(query, gather_adjacent(query, chunks), asking,
                               asking.each(lambda x: gather_adjacent(x, chunks)), causal=self.causal)
        back = order.argsort(-1)
        if self.kernel.repeats.kind == "divide":
            first = torch.arange(rounds, device=back.device)[:, None] * padded
            scores = scores - count_meetings((back + first) // chunks.length, arranged, chunks).to(scores.dtype).log()
        mixed, found = self.mix(scores, gather_adjacent(mixing, chunks), context)
        mixed = take_rows(mixed.flatten(2, 3).unflatten(2, (rounds, -1)), back)
        found = found.flatten(2, 3).unflatten(2, (rounds, -1)).gather(3, back)
        return combine_rounds(mixed, found)[:, :, :length]

    def sorted(self, vectors: Tensor, known: KeyPositions, context: Context) -> Tensor:
        """Return the positions of every round by bucket, then by place, padding last. Shapes: -> [B, H, R, L]."""
        rounds = self.rounds(context)
        length, factors = vectors.shape[2], self.kernel.factors(vectors.shape[2])
        count = math.prod(factors)
        ways = draw_hash_directions(self.kernel, (vectors.shape[1], vectors.shape[3], rounds), factors, vectors.device)
        kept = torch.int16 if count < torch.iinfo(torch.int16).max else torch.int32
        buckets = context.choose(lambda: hash_vectors(vectors, self.kernel, ways, length).to(kept))
        if known.real is not None:
            buckets = buckets.masked_fill(~known.real[:, :, None], count)
        order: Tensor = buckets.sort(dim=-1, stable=True).indices
        return order

    def newest(self, vectors: Tensor, value: Tensor, context: Context) -> Tensor:
        """Attention of the last position to those before it. Shapes: vectors and value [B, H, K, E] -> [B, H, 1, E].

        It is sorted among those that it knows, and sees the chunks that it is then in; so what it sees can differ
        from what it sees in one pass over a longer text, as in the published code.
        """
        chunks, length = self.kernel.chunks, vectors.shape[2]
        known = find_key_positions(context, length).each(lambda x: x[..., :length])
        asking, query = known.each(lambda x: x[..., -1:]), vectors[:, :, -1:]
        if length <= chunks.length:
            return self.mix(shared_scores(query, vectors, asking, known, causal=False), value, context)[0]
        order = self.sorted(vectors, known, context)
        rank = (order == length - 1).long().argmax(-1, keepdim=True)
        start = (rank // chunks.length - chunks.before) * chunks.length
        seen = order.gather(3, (start + torch.arange(chunks.width, device=rank.device)) % length)  # [B, H, R, W]

        def arranged(x: Tensor) -> Tensor:
            """Shapes: [B, H, K, ...] -> [B, H, R, W, ...]."""
            rounds, tail = seen.shape[2], x.shape[3:]
            x = x[:, :, None].expand(seen.shape[0], seen.shape[1], rounds, *x.shape[2:])
            return x.gather(3, seen.view(*seen.shape, *(1,) * len(tail)).expand(*seen.shape, *tail))

        scores = shared_scores(query[:, :, None], arranged(vectors), asking.each(lambda x: x[:, :, None]),
                               known.each(arranged), causal=False)
        if self.kernel.repeats.kind == "divide":
            times = (seen[..., None] == seen.flatten(2)[:, :, None, None]).sum(-1)
            scores = scores - times[:, :, :, None].to(scores.dtype).log()
        return combine_rounds(*self.mix(scores, arranged(value), context))


def count_meetings(chunk: Tensor, arranged: Callable[[Tensor], Tensor], chunks: c.Chunks) -> Tensor:
    """Return how often each query meets each key of its neighbourhood, over all rounds, at least once.

    Shapes: chunk [B, H, R, L], the chunk of the sorted row that a position is in, in each round -> [B, H, N, C, W].
    """
    own = [arranged(one) for one in chunk.unbind(2)]
    known = [gather_adjacent(one, chunks) for one in own]
    total = own[0].shape[2]
    times = torch.zeros(*own[0].shape, known[0].shape[3], dtype=torch.int16, device=chunk.device)
    for asking in own:
        for step in chunk_offsets(chunks, total):
            for other in known:
                times += (asking[..., None] + step) % total == other[..., None, :]
    return times.clamp(min=1)


def combine_rounds(mixed: Tensor, found: Tensor) -> Tensor:
    """Mix the rounds by how much attention each has found. Shapes: [B, H, R, L, E] and [B, H, R, L] -> [B, H, L, E].

    Source: Kitaev et al. 2020, §2, multi-round, and appendix A; the kernel says how often a repeated key counts.
    """
    shares = (found - found.logsumexp(2, keepdim=True)).exp()  # as published; a softmax differs where all is `SELF`
    together: Tensor = (mixed * shares[..., None].to(mixed.dtype)).sum(2)
    return together
