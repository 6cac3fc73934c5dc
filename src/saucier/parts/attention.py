"""Self-attention and cross-attention: projections around a kernel, with positions, visibility and cache.

Global tokens may have projections of their own (Longformer).

Letters: B batch, L length, S memory length, H heads, G key-value heads, E head width, D dim, N most global tokens
of a
row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.config.questions import differs_by_head, draws_blocks
from saucier.parts.attention_slots import build_positions, find_mixer
from saucier.parts.context import Context, KernelCall
from saucier.parts.global_attention import GlobalPositions, find_global_positions, mask_global_rows, publish_weights
from saucier.parts.kernels import (
    Scores,
    attend,
    attend_stepwise,
    attention_weights,
    merge_mask_and_bias,
    repeat_heads,
)
from saucier.parts.linear import (
    Linear,
    LowRankLinear,
    PartlyBiased,
    build_map,
    first_outputs,
    last_outputs,
)
from saucier.parts.masks import Draw, Mask, Ragged
from saucier.parts.norms import dropout
from saucier.parts.positions import alibi_bias, build_rotation, rotate
from saucier.parts.relative_positions import GlobalLocalPositions, ShawPositions
from saucier.parts.sparse.dispatch import plan_sparse_work, takes_tiles
from saucier.parts.sparse.mixing import SparseAttention


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """Shapes: [B, L, H·E] -> [B, H, L, E]."""
    return x.view(*x.shape[:-1], -1, head_dim).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Shapes: [B, H, L, E] -> [B, L, H·E]."""
    return x.transpose(1, 2).flatten(2)


Mix = Callable[[Tensor, Tensor, Tensor, Scores], Tensor]


def mix_by_rows(mix: Mix, heads: tuple[Tensor, Tensor, Tensor], scores: Scores, layout: Ragged,
                memory_layout: Ragged) -> Tensor:
    """Apply `mix` to query, key and value of packed rows, row by row.

    Short packed rows are padded again for the attention alone: many small calls would cost more than the padding.
    Shapes: query [1, H, Q, E], key and value [1, G, K, E], all rows one after another.
    """
    query, key, value = heads
    if layout.short and memory_layout.short:
        return layout.pack_heads(mix(layout.unpack_heads(query), memory_layout.unpack_heads(key),
                                     memory_layout.unpack_heads(value), scores))
    queries, keys = layout.lengths, memory_layout.lengths
    rows = zip(query.split(queries, dim=2), key.split(keys, dim=2), value.split(keys, dim=2), strict=True)
    return torch.cat([mix(q, k, v, cut_row(scores, row, queries[row], keys[row]))
                      for row, (q, k, v) in enumerate(rows)], dim=2)


def cut_row(scores: Scores, row: int, queries: int, keys: int) -> Scores:
    """Return what belongs to one row of a packed batch, which holds `queries` real queries and `keys` real keys."""
    mask, bias, allowed = scores.mask, scores.bias, scores.mask.allowed
    if allowed is not None:
        allowed = allowed[row if allowed.shape[0] > 1 else 0][None, :, :queries, :keys]
    if bias is not None:
        bias = bias[row if bias.shape[0] > 1 else 0][None, :, :queries, :keys]
    return replace(scores, mask=Mask(mask.causal, allowed, mask.whole, device=mask.device), bias=bias)


class SelfAttention(nn.Module):
    """Attention of a sequence to itself. Source: Vaswani et al. 2017, §3.2, arXiv:1706.03762."""

    def __init__(self, config: c.SelfAttention, dim: int) -> None:
        """Build one map for queries, keys and values together, in this order of rows, and the output map."""
        super().__init__()
        self.config = config
        self.widths = config.projection.widths(dim)
        query, key, self.head_dim = self.widths
        self.qkv = build_qkv(config, dim)
        self.out = build_map(query, dim, bias=config.projection.output_bias,
                             rank=c.map_rank(config.projection.ranks, "out"))
        self.global_qkv = Linear(dim, query + 2 * key, bias=config.global_maps.bias) if config.global_maps else None
        self.positions = build_positions(config, dim)
        self.mixer = find_mixer(config.kernel)
        setattr(self, self.mixer.name, self.mixer.weights and self.mixer.weights(config))
        self.reads_past = True
        """A block's memory comes before the rows that it reads."""
        self.mask_heads = config.projection.heads if differs_by_head(config.visibility) else 1
        """Heads that see differently; 1 where all see alike."""
        self.draws = draws_blocks(config.visibility)
        self.tiled = takes_tiles(config)
        self.biased = isinstance(config.positions, c.T5Bias | c.Alibi)
        self.caches = config.kernel.caches_keys
        terms = config.positions.terms if isinstance(config.positions, c.Disentangled) else 1
        self.scale = config.projection.scale or (terms * self.head_dim)**-0.5

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Shapes: x [B, L, D] -> [B, L, D]."""
        number = context.next_slot("self_attention")
        query_width, key_width, _ = self.widths
        context.maps, read = self.qkv, x if context.read is None else context.read
        rows = self.qkv(read if context.key_rows is None else context.key_rows)
        query, key, value = rows.split([query_width, key_width, key_width], dim=-1)
        query = query if context.key_rows is None else first_outputs(self.qkv, read, query_width)
        query, key, value = (split_heads(part, self.head_dim) for part in (query, key, value))
        if context.segment is not None:
            query, key, value = context.segment.split(query, key, value)
        positions = self.config.positions
        if isinstance(positions, c.Rotary):
            turn = context.once(("rotation", positions, self.head_dim),
                                lambda: build_rotation(positions, context.positions, self.head_dim))
            query, key = rotate(query, turn), rotate(key, turn)
            value = rotate(value, turn) if positions.values else value
        if context.cache is not None and self.caches:
            key, value = context.cache.extend(number, key, value)
        mixed = self.attend(query, key, value, context)
        mixed = join_heads(mixed if context.segment is None else context.segment.rejoin(mixed))
        if self.global_qkv is not None:
            mixed = attend_globally(self, self.global_qkv, mixed, x, context)
        if context.want_weights and context.observe is None:
            publish_weights(self.config.visibility, context)
        return self.out(mixed)  # type: ignore[no-any-return]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, context: Context) -> Tensor:
        """Mix the values of packed or plain rows. Shapes: [B, H, L, E] and [B, G, K, E] -> [B, H, L, E]."""
        if (mix := self.mixer.attend) is not None:
            call = KernelCall(self.config, getattr(self, self.mixer.name), self.scale, self.dropout, context)
            return context.unpacked(lambda q, k, v: mix(q, k, v, call), query, key, value)
        layer = context.slots.get("self_attention", 0) - 1
        draw = Draw(query.shape[1], layer) if self.training and self.draws else None
        if self.tiled and context.plans:
            work = plan_sparse_work(self.config, context, scale=self.scale, dropout=self.dropout, draw=draw)
            if work is not None:
                key, value = (repeat_heads(one, query.shape[1]) if work.by_head else one for one in (key, value))
                return SparseAttention.apply(query, key, value, self.met(query, context), work)  # type: ignore[no-any-return, no-untyped-call]
        mask = context.mask(self.config.visibility, draw, self.mask_heads)
        bias = self.bias(query.shape[1], context) if self.biased else None
        if mask.times is not None:  # a key that counts n times is one whose score is larger by log n
            bias = mask.times.log() if bias is None else bias + mask.times.log()
        if bias is not None and mask.whole and not context.want_weights:
            mask, bias = Mask(), self.addend(mask, bias, query.dtype, None if draw else context)
        scores = Scores(mask, self.scale, bias, self.dropout, context.observe)
        if context.layout is None:
            return self.mix(query, key, value, scores, context)
        return mix_by_rows(partial(self.mix, context=context), (query, key, value), scores, context.layout,
                           context.layout)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, scores: Scores, context: Context) -> Tensor:
        """One attention without packing, by the fused kernel unless weights or relative vectors are needed."""
        if self.positions is not None:
            relative = self.positions(query, key, self.scale, context)
            scores = replace(scores, bias=relative if scores.bias is None else scores.bias + relative)
        if isinstance(self.positions, ShawPositions):  # relative vectors on values too, eq 3
            weights = attention_weights(query, key, scores)
            dropped = dropout(weights, scores.dropout)
            mixed = dropped @ repeat_heads(value, query.shape[1]) + self.positions.mix(dropped, context)
        elif context.want_weights:
            mixed, weights = attend_stepwise(query, key, value, scores)
        else:
            return attend(query, key, value, scores)
        if context.want_weights:
            times = scores.mask.times
            context.attentions.append(weights if times is None else weights / times)
        return mixed

    def met(self, query: Tensor, context: Context) -> Tensor | None:
        """Return what queries add to scores by the label of the pair, if pairs have one. Shapes: -> [B, H, Q, N]."""
        if isinstance(self.positions, GlobalLocalPositions):
            return self.positions.met(query, self.scale)
        if isinstance(self.config.positions, c.T5Bias):
            assert context.shared is not None, "the stack gave its table"
            return self.own(context.shared.T[None, :, None]).expand(*query.shape[:3], -1)
        return None

    def bias(self, heads: int, context: Context) -> Tensor | None:
        """Return the relative bias of this attention: the stack's T5 table, or ALiBi's slopes."""
        positions = self.config.positions
        if isinstance(positions, c.T5Bias):
            return None if context.bias is None else self.own(context.bias)
        assert isinstance(positions, c.Alibi), "no other positions are biased"
        span = context.span
        return context.once(("alibi", positions, heads),
                            lambda: alibi_bias(positions, heads, span.start, span.queries, span.keys, span.device))

    def own(self, bias: Tensor) -> Tensor:
        """Return what a bias for all heads of the stack holds for those of this attention. Shapes: [1, H, ...]."""
        kept = getattr(self.config.positions, "kept", None)
        return bias if kept is None else bias[:, list(kept.numbers)]

    def addend(self, mask: Mask, bias: Tensor, dtype: torch.dtype, context: Context | None) -> Tensor:
        """Put mask and bias together, once for all layers that have the same, which share a context."""
        if context is None:
            return merge_mask_and_bias(mask, bias, dtype)
        key = ("addend", self.config.visibility, self.config.positions, bias.shape[1])
        return context.once(key, lambda: merge_mask_and_bias(mask, bias, dtype))

    @property
    def dropout(self) -> float:
        """Dropout on the weights, in training only."""
        return self.config.kernel.rate if self.training else 0.0


def build_qkv(config: c.SelfAttention, dim: int) -> Linear | LowRankLinear:
    """Return the one map to queries, keys and values, in this order of rows."""
    projection, biased = config.projection, (config.positions.query_bias, config.projection.key_bias, True)
    (query, key, _), rank = projection.widths(dim), c.map_rank(projection.ranks, "qkv")
    if not projection.bias or all(biased):
        return build_map(dim, query + 2 * key, bias=projection.bias, rank=rank)
    last = PartlyBiased(rank or dim, (query, key, key), biased=biased)
    return last if rank is None else LowRankLinear(dim, rank, last)


class CrossAttention(nn.Module):
    """Attention of the decoder to the encoder's output. Source: Vaswani et al. 2017, §3.2.3."""

    def __init__(self, config: c.CrossAttention, dim: int) -> None:
        """Build the query map, one map for keys and values together, and the output map."""
        super().__init__()
        self.config = config
        query, key, self.head_dim = config.projection.widths(dim)
        ranks = config.projection.ranks
        self.q = build_map(dim, query, bias=config.projection.bias, rank=c.map_rank(ranks, "q"))
        self.kv = build_map(dim, 2 * key, bias=config.projection.bias, rank=c.map_rank(ranks, "kv"))
        self.out = build_map(query, dim, bias=config.projection.output_bias, rank=c.map_rank(ranks, "out"))
        self.scale = config.projection.scale or self.head_dim**-0.5

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Read the memory of the context. Shapes: x [B, L, D] -> [B, L, D]."""
        query = split_heads(self.q(x), self.head_dim)
        key, value = self.memory(context)
        rate = self.config.kernel.dropout if self.training else 0.0
        scores = Scores(context.memory_mask(), self.scale, dropout=rate, observe=context.observe)
        mix = partial(attend, record=context.cross_attentions if context.want_weights else None)
        if context.layout is None or context.memory is None or context.memory.layout is None:
            mixed = mix(query, key, value, scores)
        else:
            mixed = mix_by_rows(mix, (query, key, value), scores, context.layout, context.memory.layout)
        return self.out(join_heads(mixed))  # type: ignore[no-any-return]

    def memory(self, context: Context) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the encoder output, from the cache where it has them.

        Shapes: -> [B, G, S, E] twice.
        """
        cache = context.cache
        slot = context.next_slot("cross_attention")
        if cache is not None and slot in cache.cross:
            return cache.cross[slot]
        key, value = (split_heads(part, self.head_dim) for part in self.kv(context.encoder.hidden).chunk(2, dim=-1))
        if cache is not None:
            key, value = key.contiguous(), value.contiguous()  # read at every step from now on
            cache.cross[slot] = (key, value)
        return key, value


def attend_globally(attention: SelfAttention, maps: Linear, mixed: Tensor, x: Tensor, context: Context) -> Tensor:
    """Give the global tokens what their own queries read of their own keys and values, made by `maps`.

    Shapes: x [B, L, D], mixed [B, L, H·E] -> the same, or all [1, T, ...] where rows are packed.
    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """
    found, layout = find_global_positions(attention.config.visibility, context), context.layout
    if not found.index.shape[1]:
        return mixed
    full = x if layout is None else layout.unpack(x)
    query, key, value = project_global(attention, maps, full, found)
    scores = Scores(mask_global_rows(attention.config, found, context), attention.scale, dropout=attention.dropout)
    row, place = found.pairs
    record: list[Tensor] = []
    read = attend(query, key, value, scores, record if context.want_weights else None)
    for weights in record:
        dense = context.attentions.pop().transpose(1, 2)
        context.attentions.append(
            dense.index_put((row, place), weights.transpose(1, 2)[found.real]).transpose(1, 2))
    flat = row * full.shape[1] + place
    if layout is not None:
        flat = layout.mask.flatten().long().cumsum(0)[flat] - 1
    values = read.transpose(1, 2).flatten(2)[found.real].to(mixed.dtype)
    return mixed.flatten(0, 1).index_copy(0, flat, values).view_as(mixed)


def project_global(attention: SelfAttention, maps: Linear, x: Tensor,
                   found: GlobalPositions) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, H, N, E] of the global tokens, and keys and values [B, G, L, E] of all."""
    width = attention.widths[0]
    chosen = x.gather(1, found.index[..., None].expand(-1, -1, x.shape[-1]))
    query, both = first_outputs(maps, chosen, width), last_outputs(maps, x, width)
    key, value = both.chunk(2, dim=-1)
    return (*(part.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2) for part in (query, key, value)),)
