"""Attention by a plan: tile after tile, each softmax put together exactly from the tiles that a query reads in.

Forward and backward need memory for one tile beside what comes in and goes out. Letters: B batch, H heads, G key-value
heads, L queries, K keys, E head width; Q queries and W keys of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from saucier.parts.sparse.mixer import Mixer, exact
from saucier.parts.sparse.plan import Places, Tile, width


@dataclass(slots=True)
class Stretch:
    """One row of the batch, or one of several rows that are packed into one; all heads, or some."""

    row: int
    heads: slice
    queries: slice
    keys: slice
    tiles: list[Tile]


@dataclass(slots=True)
class Work:
    """All that is to be done, apart from the numbers."""

    stretches: list[Stretch]
    scale: float
    dropout: float = 0.0
    """On the weights."""
    by_head: bool = False
    """Whether heads read different keys, so that each needs its own."""


def sparse(query: Tensor, key: Tensor, value: Tensor, work: Work, met: Tensor | None = None) -> Tensor:
    """Mix the values as the work says; a query that sees nothing gives zeros.

    `met` is what each query adds to the score of a key by the label of the pair.
    Shapes: query [B, H, L, E]; key, value [B, G, K, E]; met [B, H, L, N] -> [B, H, L, E].
    Source: Rabe and Staats 2021, §2, arXiv:2112.05682, for putting a softmax together from its pieces.
    """
    found: Tensor = Mixing.apply(query, key, value, met, work)  # type: ignore[no-untyped-call]
    return found


class Mixing(torch.autograd.Function):
    """The attention and its gradient, which computes the weights anew."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, met: Tensor | None, work: Work) -> Tensor:
        """Shapes: as `sparse`."""
        mixed = torch.zeros_like(query, memory_format=torch.contiguous_format)
        total = torch.full(query.shape[:-1], -torch.inf, dtype=exact(query), device=query.device)
        mixer = Mixer(work.scale, work.dropout, int(torch.randint(2**62, ())) if work.dropout else 0, query.device)
        for stretch in work.stretches:
            q, out, sums = (x[stretch.row, stretch.heads, stretch.queries] for x in (query, mixed, total))
            k, v = (x[stretch.row, stretch.heads, stretch.keys] for x in (key, value))
            for tile in stretch.tiles:
                addend = added(tile, None if met is None else met[stretch.row, stretch.heads, stretch.queries])
                found = mixer.forward(picked(q, tile.queries), gathered(k, tile), gathered(v, tile), addend)
                put(tile, out, sums, *found)
        ctx.save_for_backward(query, key, value, met, mixed, total)
        ctx.work, ctx.seed = work, mixer.seed
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Shapes: slope [B, H, L, E] -> as query, key and value."""
        query, key, value, met, mixed, total = ctx.saved_tensors
        work: Work = ctx.work
        slopes = [torch.zeros_like(x, dtype=exact(x), memory_format=torch.contiguous_format)
                  for x in (query, key, value, *(() if met is None else (met,)))]
        total = total.masked_fill(total == -torch.inf, 0.0)
        mixer = Mixer(work.scale, work.dropout, ctx.seed, query.device, met is not None)
        for stretch in work.stretches:
            q, out, sums, given, to_q = (x[stretch.row, stretch.heads, stretch.queries]
                                         for x in (query, mixed, total, slope, slopes[0]))
            k, v, to_k, to_v = (x[stretch.row, stretch.heads, stretch.keys] for x in (key, value, *slopes[1:3]))
            for tile in stretch.tiles:
                of_tile = [picked(x, tile.queries) for x in (given, q, out, sums)]
                m, to_m = (None, None) if met is None else (x[stretch.row, stretch.heads, stretch.queries]
                                                            for x in (met, slopes[3]))
                *found, scores = mixer.backward(of_tile, gathered(k, tile), gathered(v, tile), added(tile, m))
                if to_m is not None and scores is not None:
                    add(to_m, (tile.queries,), by_label(tile, scores, to_m))
                for target, runs, part in zip((to_q, to_k, to_v), ((tile.queries,), tile.keys, tile.keys), found,
                                              strict=True):
                    add(target, runs, part)
        given = [found.to(x.dtype) for found, x in zip(slopes, (query, key, value, met), strict=False)]
        return *given[:3], given[3] if met is not None else None, None


def added(tile: Tile, met: Tensor | None) -> Tensor | None:
    """Return what is added to the scores of a tile. Shapes: met [H, L, N] -> [1 or H, 1 or Q, W]."""
    if met is None or tile.labels is None:
        return tile.addend
    found = picked(met, tile.queries).to(exact(met))
    found = found.gather(-1, tile.labels.long().expand(len(met), -1, -1))
    return found if tile.addend is None else found + tile.addend


def by_label(tile: Tile, slope: Tensor, like: Tensor) -> Tensor:
    """Sum the slopes of scores by label. Shapes: slope [H, Q, W], like [H, L, N] -> [H, Q, N]."""
    assert tile.labels is not None, "asked where pairs have labels"
    empty = slope.new_zeros(*slope.shape[:2], like.shape[-1])
    return empty.scatter_add(-1, tile.labels.long().expand_as(slope), slope)


def picked(x: Tensor, places: Places) -> Tensor:
    """Take places of a row. Shapes: x [H, L, ...] -> [H, Q, ...]."""
    if isinstance(places, slice) or places.dim() == 1:
        return x[:, places]
    return x[torch.arange(len(x), device=x.device)[:, None], places]


def gathered(x: Tensor, tile: Tile) -> Tensor:
    """Take the keys of a tile, by a view where it reads one stretch. Shapes: [G, K, E] -> [G, W, E]."""
    found = [picked(x, run) for run in tile.keys]
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def add(target: Tensor, runs: tuple[Places, ...], found: Tensor) -> None:
    """Add to the places of some runs. Shapes: target [G, K, E], found [G, W, E]."""
    found = found.to(target.dtype)
    for run, part in zip(runs, found.split([width(run) for run in runs], dim=1), strict=True):
        if isinstance(run, slice):
            target[:, run] += part
        elif run.dim() == 1:
            target.index_add_(1, run, part)
        else:
            heads = torch.arange(len(target), device=target.device)[:, None]
            target.index_put_((heads, run), part, accumulate=True)


def put(tile: Tile, out: Tensor, sums: Tensor, found: Tensor, total: Tensor) -> None:
    """Write what queries read in a tile, or put it together with what they have read before.

    Shapes: out [H, L, E], sums [H, L]; found [H, Q, E], total [H, Q], the logarithm of the sum of the exponentials.
    """
    if tile.fresh:
        out[:, tile.queries], sums[:, tile.queries] = found, total
        return
    before, known = out[:, tile.queries], sums[:, tile.queries]
    both = torch.logaddexp(known, total)
    both = torch.where(both.isnan(), -torch.inf, both)
    finite = both.masked_fill(both == -torch.inf, 0.0)
    out[:, tile.queries] = (before * (known - finite).exp()[..., None]
                            + found * (total - finite).exp()[..., None]).to(out.dtype)
    sums[:, tile.queries] = both
