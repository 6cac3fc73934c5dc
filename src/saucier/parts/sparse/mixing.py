"""Attention by a plan: tile after tile, each softmax put together exactly from the tiles that a query reads.

A tile goes forward and backward by PyTorch's fused kernel where it can, and by products and a softmax elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from saucier.parts.norms import DRAW_LEVELS
from saucier.parts.sparse.plan import Places, Tile, count_places

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(slots=True)
class TileMixer:
    """How tiles are mixed; one for a pass forward, and one for a pass backward that draws the same."""

    scale: float
    dropout: float
    seed: int
    device: torch.device
    labelled: bool = False
    """Whether scores have slopes of their own, which the fused kernel does not give."""
    generator: torch.Generator | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Begin the draws."""
        if self.dropout:
            self.generator = torch.Generator(self.device).manual_seed(self.seed)

    @property
    def fused(self) -> bool:
        """Whether the fused kernel is to be used."""
        return self.device.type == "cpu" and not self.dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, addend: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mix the values, and give the logarithm of the sum of the exponentials of each query's scores.

        Shapes: query [H, Q, E], key and value [G, W, E], addend [1 or H, 1 or Q, W] -> [H, Q, E], [H, Q].
        """
        heads, queries, groups = *query.shape[:2], len(key)
        query, addend = group_queries(query, groups), group_addend(addend, heads, queries, groups)
        if self.fused:
            # the kernel reads its bits as they are
            mask = None if addend is None else addend[None].to(exact_format(query))
            mixed, total = FLASH(query[None], key[None], value[None], attn_mask=mask, scale=self.scale)
            mixed, total = mixed[0], total[0]
            if addend is not None:  # the kernel says 0 for a query that sees nothing
                total = total.masked_fill((addend == -torch.inf).all(-1), -torch.inf)
        else:
            scores = self.scores(query, key, addend)
            total = scores.logsumexp(-1)
            weights = (scores - total.masked_fill(total == -torch.inf, 0.0)[..., None]).exp()
            mixed = (self.kept(weights) @ value.to(exact_format(value))).to(query.dtype)
        return mixed.reshape(heads, queries, -1), total.reshape(heads, queries)

    def backward(self, known: list[Tensor], key: Tensor, value: Tensor,
                 addend: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Give the slopes of query, key and value, and of the scores where these have labels.

        Known are the slope of what was mixed, the query, what was mixed, and its total, both over all tiles together.
        Shapes: known [H, Q, E] three times and [H, Q], key and value [G, W, E] -> the same, and [H, Q, W].
        """
        slope, query, mixed, total = known
        heads, queries, groups = *query.shape[:2], len(key)
        addend = group_addend(addend, heads, queries, groups)
        slope, query, mixed = (group_queries(x, groups) for x in (slope, query, mixed))
        total = group_queries(total[..., None], groups)[..., 0]
        to_scores: Tensor | None = None
        if self.fused and not self.labelled:
            tensors = (x[None] for x in (slope, query, key, value, mixed, total))
            mask = None if addend is None else addend[None].to(exact_format(query))
            found = FLASH_BACKWARD(*tensors, 0.0, False, attn_mask=mask, scale=self.scale)
            to_query, to_key, to_value = (x[0] for x in found)
        else:
            slope, query, mixed, key, value = (x.to(exact_format(x)) for x in (slope, query, mixed, key, value))
            weights = (self.scores(query, key, addend) - total[..., None]).exp()
            kept = self.draw(weights)
            to_value = (weights if kept is None else weights * kept).transpose(1, 2) @ slope
            to_weights = slope @ value.transpose(1, 2)
            to_weights = to_weights if kept is None else to_weights * kept
            to_scores = weights * (to_weights - (slope * mixed).sum(-1, keepdim=True))
            to_query, to_key = to_scores @ key * self.scale, to_scores.transpose(1, 2) @ query * self.scale
            to_scores = to_scores.reshape(heads, queries, -1)
        return to_query.reshape(heads, queries, -1), to_key, to_value, to_scores

    def scores(self, query: Tensor, key: Tensor, addend: Tensor | None) -> Tensor:
        """Shapes: query [G, N·Q, E], key [G, W, E] -> [G, N·Q, W]."""
        found = (query.to(exact_format(query)) * self.scale) @ key.to(exact_format(key)).transpose(1, 2)
        return found if addend is None else found + addend

    def kept(self, weights: Tensor) -> Tensor:
        """Drop some of the weights, and scale up the others."""
        drawn = self.draw(weights)
        return weights if drawn is None else weights * drawn

    def draw(self, weights: Tensor) -> Tensor | None:
        """Draw which weights stay, and their factor; None where all do. Shapes: as the weights."""
        if self.generator is None:
            return None
        bits = torch.empty(weights.shape, dtype=torch.int32, device=self.device)
        bits.random_(0, DRAW_LEVELS, generator=self.generator)
        dropped = round(self.dropout * DRAW_LEVELS)
        return (bits >= dropped).to(weights.dtype) * (DRAW_LEVELS / (DRAW_LEVELS - dropped))


def exact_format(x: Tensor) -> torch.dtype:
    """Return the format that sums are kept in: float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def group_queries(x: Tensor, groups: int) -> Tensor:
    """Put the queries of a group's heads one after another. Shapes: [H, Q, E] -> [G, N·Q, E]."""
    return x if len(x) == groups else x.reshape(groups, -1, x.shape[-1])


def group_addend(addend: Tensor | None, heads: int, queries: int, groups: int) -> Tensor | None:
    """Likewise for an addend. Shapes: [1 or H, 1 or Q, W] -> [1 or G, 1 or Q or N·Q, W]."""
    if addend is None or heads == groups or addend.shape[:2] == (1, 1):
        return addend
    if len(addend) == 1:
        return addend.expand(1, queries, -1).repeat(1, heads // groups, 1)
    return addend.expand(-1, queries, -1).reshape(groups, -1, addend.shape[-1])


@dataclass(slots=True)
class Stretch:
    """One row of the batch, or one of several rows that are packed into one; all heads, or some."""

    row: int
    heads: slice
    queries: slice
    keys: slice
    tiles: list[Tile]


@dataclass(slots=True)
class SparseWork:
    """All that is to be done, without the numbers."""

    stretches: list[Stretch]
    scale: float
    dropout: float = 0.0
    """On the weights."""
    by_head: bool = False
    """Whether heads read different keys, so that each needs its own."""


class SparseAttention(torch.autograd.Function):
    """Attention as the work says, and its gradient, which computes the weights again.

    A query that sees nothing gives zeros. Source: Rabe and Staats 2021, §2, arXiv:2112.05682, for putting a softmax
    together from its pieces.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, met: Tensor | None, work: SparseWork) -> Tensor:
        """Mix the values; `met` is what each query adds to the score of a key by the label of the pair.

        Shapes: query [B, H, L, E]; key, value [B, G, K, E]; met [B, H, L, N] -> [B, H, L, E].
        """
        mixed = torch.zeros_like(query, memory_format=torch.contiguous_format)
        total = torch.full(query.shape[:-1], -torch.inf, dtype=exact_format(query), device=query.device)
        mixer = TileMixer(work.scale, work.dropout, int(torch.randint(2**62, ())) if work.dropout else 0, query.device)
        for stretch in work.stretches:
            q, out, sums = (x[stretch.row, stretch.heads, stretch.queries] for x in (query, mixed, total))
            k, v = (x[stretch.row, stretch.heads, stretch.keys] for x in (key, value))
            for tile in stretch.tiles:
                addend = tile_addend(tile, None if met is None else met[stretch.row, stretch.heads, stretch.queries])
                found = mixer.forward(pick_rows(q, tile.queries), gather_keys(k, tile), gather_keys(v, tile), addend)
                put_tile(tile, out, sums, *found)
        ctx.save_for_backward(query, key, value, met, mixed, total)
        ctx.work, ctx.seed = work, mixer.seed
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        """Shapes: slope [B, H, L, E] -> as query, key and value."""
        query, key, value, met, mixed, total = ctx.saved_tensors
        work: SparseWork = ctx.work
        slopes = [torch.zeros_like(x, dtype=exact_format(x), memory_format=torch.contiguous_format)
                  for x in (query, key, value, *(() if met is None else (met,)))]
        total = total.masked_fill(total == -torch.inf, 0.0)
        mixer = TileMixer(work.scale, work.dropout, ctx.seed, query.device, met is not None)
        for stretch in work.stretches:
            q, out, sums, given, to_q = (x[stretch.row, stretch.heads, stretch.queries]
                                         for x in (query, mixed, total, slope, slopes[0]))
            k, v, to_k, to_v = (x[stretch.row, stretch.heads, stretch.keys] for x in (key, value, *slopes[1:3]))
            for tile in stretch.tiles:
                of_tile = [pick_rows(x, tile.queries) for x in (given, q, out, sums)]
                m, to_m = (None, None) if met is None else (x[stretch.row, stretch.heads, stretch.queries]
                                                            for x in (met, slopes[3]))
                *found, scores = mixer.backward(of_tile, gather_keys(k, tile), gather_keys(v, tile),
                                                tile_addend(tile, m))
                if to_m is not None and scores is not None and tile.labels is not None:
                    add_to_runs(to_m, (tile.queries,), sum_by_label(tile.labels, scores, to_m))
                for target, runs, part in zip((to_q, to_k, to_v), ((tile.queries,), tile.keys, tile.keys), found,
                                              strict=True):
                    add_to_runs(target, runs, part)
        given = [found.to(x.dtype) for found, x in zip(slopes, (query, key, value, met), strict=False)]
        return *given[:3], given[3] if met is not None else None, None


def tile_addend(tile: Tile, met: Tensor | None) -> Tensor | None:
    """Return what is added to the scores of a tile. Shapes: met [H, L, N] -> [1 or H, 1 or Q, W]."""
    if met is None or tile.labels is None:
        return tile.addend
    found = pick_rows(met, tile.queries).to(exact_format(met))
    found = found.gather(-1, tile.labels.long().expand(len(met), -1, -1))
    return found if tile.addend is None else found + tile.addend


def sum_by_label(labels: Tensor, slope: Tensor, like: Tensor) -> Tensor:
    """Sum the slopes of scores by label. Shapes: labels, slope [H, Q, W], like [H, L, N] -> [H, Q, N]."""
    empty = slope.new_zeros(*slope.shape[:2], like.shape[-1])
    return empty.scatter_add(-1, labels.long().expand_as(slope), slope)


def pick_rows(x: Tensor, places: Places) -> Tensor:
    """Take places of a row. Shapes: x [H, L, ...] -> [H, Q, ...]."""
    if isinstance(places, slice) or places.dim() == 1:
        return x[:, places]
    return x[torch.arange(len(x), device=x.device)[:, None], places]


def gather_keys(x: Tensor, tile: Tile) -> Tensor:
    """Take the keys of a tile, by a view where it reads one stretch. Shapes: [G, K, E] -> [G, W, E]."""
    found = [pick_rows(x, run) for run in tile.keys]
    return found[0] if len(found) == 1 else torch.cat(found, dim=1)


def add_to_runs(target: Tensor, runs: tuple[Places, ...], found: Tensor) -> None:
    """Add to the places of some runs. Shapes: target [G, K, E], found [G, W, E]."""
    found = found.to(target.dtype)
    for run, part in zip(runs, found.split([count_places(run) for run in runs], dim=1), strict=True):
        if isinstance(run, slice):
            target[:, run] += part
        elif run.dim() == 1:
            target.index_add_(1, run, part)
        else:
            heads = torch.arange(len(target), device=target.device)[:, None]
            target.index_put_((heads, run), part, accumulate=True)


def put_tile(tile: Tile, out: Tensor, sums: Tensor, found: Tensor, total: Tensor) -> None:
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
