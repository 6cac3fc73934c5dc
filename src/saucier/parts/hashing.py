"""Attention between positions that hash alike (Reformer): queries and keys are one map, rows are sorted by bucket.

Letters: B batch, H heads, L length, R rounds, N chunks of the sorted row, C positions in a chunk, W keys in its
neighbourhood, E head width, D dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.parts.chunks import Places, adjacent, in_rows, lengthened, places, steps_of, visible
from saucier.parts.context import Context
from saucier.parts.dropout import dropout
from saucier.parts.linear import Linear

SELF, HIDDEN = -1e5, -1e9
"""Scores of a position for itself, which it sees only where nothing else is visible, and of what it may not see."""


def directions(kernel: c.Hashing, shape: tuple[int, int, int], factors: tuple[int, ...],
               device: torch.device) -> Tensor:
    """Draw what positions are hashed by. Shapes: shape (H, E, R) -> [H, E, R, half the sum of the factors]."""
    generator = None
    if kernel.seed is not None:
        generator = torch.Generator(device).manual_seed(kernel.seed)
    return torch.randn(*shape, sum(factors) // 2, generator=generator, device=device)


def hashed(vectors: Tensor, kernel: c.Hashing, ways: Tensor, length: int) -> Tensor:
    """Return the bucket of every position in every round.

    A bucket is the direction, or its opposite, that a vector points to most; factors are hashed apart.
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


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1. Shapes: [..., E] -> the same. Source: Kitaev et al. 2020, §2, shared-QK."""
    size = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) / math.sqrt(x.shape[-1])
    return x * size


def shared_scores(query: Tensor, vectors: Tensor, asking: Places, known: Places, *, causal: bool) -> Tensor:
    """Scores of queries for keys of length 1. Shapes: query [..., Q, E], vectors [..., K, E] -> [..., Q, K]."""
    scores = query @ unit(vectors).transpose(-1, -2)
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    allowed = visible(asking, known, causal=causal)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, HIDDEN)
    return scores.masked_fill(asking.number[..., None] == known.number[..., None, :], SELF)


def at(x: Tensor, order: Tensor) -> Tensor:
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
        assert isinstance(config.kernel, c.Hashing), "the builder's choice"
        self.config, self.kernel = config, config.kernel
        self.width, _, self.head_dim = config.projection.widths(dim)
        self.qkv = Linear(dim, 2 * self.width, bias=config.projection.bias)
        self.out = Linear(self.width, dim, bias=config.projection.output_bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        number = context.self_slot()
        vectors, value = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                          for part in self.qkv(x).split(self.width, dim=-1))
        if context.cache is not None and context.span.start:
            vectors, value = context.cache.extend(number, vectors, value)
            mixed = torch.cat([self.newest(vectors[:, :, :end], value[:, :, :end], context)
                               for end in range(context.span.start + 1, context.span.keys + 1)], dim=2)
        else:
            if context.cache is not None:
                context.cache.extend(number, vectors, value)
            mixed = in_rows(partial(self.whole, context=context), (vectors, value), context.layout)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    @property
    def causal(self) -> bool:
        """Whether later positions are hidden."""
        return isinstance(self.config.visibility, c.Causal)

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
        known = places(context, length)
        if length <= chunks.length:
            scores = shared_scores(vectors, vectors, known, known, causal=self.causal)
            return self.mix(scores, value, context)[0]
        padded, rounds = chunks.padded(length), self.rounds(context)
        known = known.padded(padded)
        order = self.sorted(lengthened(vectors, padded), known, context)  # [B, H, R, L]
        flat = order.flatten(2)

        def arranged(x: Tensor) -> Tensor:
            """Shapes: [B, H, L, ...] -> [B, H, N, C, ...]."""
            x = x.expand(*flat.shape[:2], *x.shape[2:])
            made: Tensor = at(x, flat) if x.dim() > 3 else x.gather(2, flat)
            return made.unflatten(2, (-1, chunks.length))  # type: ignore[no-any-return]

        asking = known.each(arranged)
        query, mixing = arranged(lengthened(vectors, padded)), arranged(lengthened(value, padded))
        scores = shared_scores(query, adjacent(query, chunks), asking, asking.each(lambda x: adjacent(x, chunks)),
                               causal=self.causal)
        back = order.argsort(-1)
        if isinstance(self.kernel.repeats, c.DivideRepeats):
            first = torch.arange(rounds, device=back.device)[:, None] * padded
            scores = scores - met((back + first) // chunks.length, arranged, chunks).to(scores.dtype).log()
        mixed, found = self.mix(scores, adjacent(mixing, chunks), context)
        mixed = at(mixed.flatten(2, 3).unflatten(2, (rounds, -1)), back)
        found = found.flatten(2, 3).unflatten(2, (rounds, -1)).gather(3, back)
        return over_rounds(mixed, found)[:, :, :length]

    def sorted(self, vectors: Tensor, known: Places, context: Context) -> Tensor:
        """Return the positions of every round by bucket, then by place, padding last. Shapes: -> [B, H, R, L]."""
        rounds = self.rounds(context)
        length, factors = vectors.shape[2], self.kernel.factors(vectors.shape[2])
        count = math.prod(factors)
        ways = directions(self.kernel, (vectors.shape[1], vectors.shape[3], rounds), factors, vectors.device)
        kept = torch.int16 if count < torch.iinfo(torch.int16).max else torch.int32
        buckets = context.choose(lambda: hashed(vectors, self.kernel, ways, length).to(kept))
        if known.real is not None:
            buckets = buckets.masked_fill(~known.real[:, :, None], count)
        order: Tensor = buckets.sort(dim=-1, stable=True).indices
        return order

    def newest(self, vectors: Tensor, value: Tensor, context: Context) -> Tensor:
        """Attention of the last position to those before it. Shapes: vectors and value [B, H, K, E] -> [B, H, 1, E].

        It is sorted among those that it knows, and sees the chunks that it then stands in; so what it sees can differ
        from what it sees in one pass over a longer text, as in the published code.
        """
        chunks, length = self.kernel.chunks, vectors.shape[2]
        known = places(context, length).each(lambda x: x[..., :length])
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
        if isinstance(self.kernel.repeats, c.DivideRepeats):
            times = (seen[..., None] == seen.flatten(2)[:, :, None, None]).sum(-1)
            scores = scores - times[:, :, :, None].to(scores.dtype).log()
        return over_rounds(*self.mix(scores, arranged(value), context))


def met(chunk: Tensor, arranged: Callable[[Tensor], Tensor], chunks: c.Chunks) -> Tensor:
    """Return how often each query meets each key of its neighbourhood, over all rounds, at least once.

    Shapes: chunk [B, H, R, L], in which chunk of the sorted row a position stands in each round -> [B, H, N, C, W].
    """
    own = [arranged(one) for one in chunk.unbind(2)]
    known = [adjacent(one, chunks) for one in own]
    total = own[0].shape[2]
    times = torch.zeros(*own[0].shape, known[0].shape[3], dtype=torch.int16, device=chunk.device)
    for asking in own:
        for step in steps_of(chunks, total):
            for other in known:
                times += (asking[..., None] + step) % total == other[..., None, :]
    return times.clamp(min=1)


def over_rounds(mixed: Tensor, found: Tensor) -> Tensor:
    """Mix the rounds by how much attention each has found. Shapes: [B, H, R, L, E] and [B, H, R, L] -> [B, H, L, E].

    Source: Kitaev et al. 2020, §2, multi-round, and appendix A; the kernel says how often a repeated key counts.
    """
    shares = (found - found.logsumexp(2, keepdim=True)).exp()  # as published; a softmax differs where all is `SELF`
    together: Tensor = (mixed * shares[..., None].to(mixed.dtype)).sum(2)
    return together
