"""Attention of global tokens by maps of their own, and the published form of the weights of sliding windows.

Letters: B batch, L length, H heads, E head width, D dim, N most global tokens of a row, W reach of a window to a side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.parts.context import Context
from saucier.parts.global_tokens import global_tokens
from saucier.parts.kernels import Scores, attend, stepwise
from saucier.parts.linear import linear
from saucier.parts.visibility import Mask, Span, allowed_pairs, within_documents

if TYPE_CHECKING:
    from saucier.parts.attention import SelfAttention


@dataclass(slots=True)
class Places:
    """Where the real global tokens of each row stand; rows that have fewer than others are filled up."""

    index: Tensor
    """[B, N]."""
    real: Tensor
    """[B, N], False where a row is filled up."""

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Row and position of every global token."""
        row, number = self.real.nonzero(as_tuple=True)
        return row, self.index[row, number]


def places(visibility: c.Visibility, context: Context) -> Places:
    """Return where the global tokens of this pass stand, found once for all layers."""
    def find() -> Places:
        span = replace(context.span, padding=context.real_keys())
        tokens = torch.stack(torch.broadcast_tensors(
            *(global_tokens(term.otherwise, span) for term in c.global_terms(visibility)))).any(0)
        tokens = tokens.expand(context.rows, -1)
        known = context.real_keys()
        tokens = tokens if known is None else tokens & known
        counts = tokens.sum(1)
        index = tokens.long().argsort(dim=1, descending=True, stable=True)[:, :int(counts.max())]
        return Places(index, torch.arange(index.shape[1], device=index.device) < counts[:, None])

    return context.once(("global places", visibility), find)


def with_global_maps(attention: SelfAttention, mixed: Tensor, x: Tensor, context: Context) -> Tensor:
    """Give the global tokens what their own queries read of their own keys and values.

    Shapes: x [B, L, D], mixed [B, L, H·E] -> the same, or all [1, T, ...] where rows are packed.
    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """
    found, layout = places(attention.config.visibility, context), context.layout
    if not found.index.shape[1]:
        return mixed
    full = x if layout is None else layout.unpack(x)
    query, key, value = global_heads(attention, full, found)
    scores = Scores(global_rows(attention.config, found, context), attention.scale, dropout=attention.dropout)
    row, place = found.pairs
    if context.want_weights:
        read, weights = stepwise(query, key, value, scores)
        dense = context.attentions.pop().transpose(1, 2)
        context.attentions.append(
            dense.index_put((row, place), weights.transpose(1, 2)[found.real]).transpose(1, 2))
    else:
        read = attend(query, key, value, scores)
    flat = row * full.shape[1] + place
    if layout is not None:
        flat = layout.mask.flatten().long().cumsum(0)[flat] - 1
    values = read.transpose(1, 2).flatten(2)[found.real].to(mixed.dtype)
    return mixed.flatten(0, 1).index_copy(0, flat, values).view_as(mixed)


def global_heads(attention: SelfAttention, x: Tensor, found: Places) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [B, H, N, E] of the global tokens, and keys and values [B, G, L, E] of all."""
    maps, width = attention.global_qkv, attention.widths[0]
    assert maps is not None, "asked only where the attention has them"
    first, rest = (None, None) if maps.bias is None else (maps.bias[:width], maps.bias[width:])
    chosen = x.gather(1, found.index[..., None].expand(-1, -1, x.shape[-1]))
    query, both = linear(chosen, maps.weight[:width], first), linear(x, maps.weight[width:], rest)
    key, value = both.chunk(2, dim=-1)
    return (*(part.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2) for part in (query, key, value)),)


def global_rows(attention: c.SelfAttention, found: Places, context: Context) -> Mask:
    """Return which keys the global tokens see. Shapes: -> [B, 1 or H, N, L]."""
    visibility = attention.visibility
    span = replace(context.span, padding=context.real_keys(), heads=attention.projection.heads)
    keys = torch.arange(span.keys, device=span.device)[None]
    rows = [seen_at(visibility, index, keys, span.of_row(row)) for row, index in enumerate(found.index)]
    return Mask(allowed=torch.cat(rows), whole=False, device=span.device)


def seen_at(visibility: c.Visibility, places: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Return which keys queries at some places see. Shapes: places [N], keys [1, L] -> [1, 1 or H, N, L]."""
    allowed = allowed_pairs(visibility, places[:, None], keys, span).expand(-1, -1, len(places), keys.shape[1])
    if span.padding is not None:
        allowed = allowed & span.padding[:, None, None]
    if span.query_documents is not None and span.key_documents is not None:
        asking = span.query_documents[:, places - span.start, None]
        allowed = allowed & within_documents(asking, span.key_documents[:, None])[:, None]
    return allowed


def publish(visibility: c.Visibility, context: Context) -> None:
    """Bring the last recorded weights into the form that a sliding window with global tokens is published in.

    Local weights become [B, H, L, N + 2W + 1]: first those on global keys, then those on the neighbours from W before
    to W behind, without the global ones; rows of global tokens are zero there, and stand in `global_attentions`,
    [B, H, L, N], by key. L is then a multiple of the widest window, and a row that lacks a token has equal weights.
    Other visibilities keep [B, H, L, L].
    """
    reach = c.sliding(visibility)
    if reach is None:
        return
    dense, found = context.attentions.pop(), places(visibility, context)
    batch, heads, length, _ = dense.shape
    tokens = torch.zeros(batch, length, dtype=torch.bool, device=dense.device).index_put(
        found.pairs, torch.ones((), dtype=torch.bool, device=dense.device))
    hidden, known = tokens[:, None, :, None], context.real_keys()
    local = banded(dense.masked_fill(tokens[:, None, None, :], 0.0), reach)
    column = found.index[:, None, None, :].expand(-1, heads, length, -1)
    on_globals = dense.gather(-1, column) * found.real[:, None, None, :]
    hidden = hidden if known is None else hidden | ~known[:, None, :, None]
    context.attentions.append(torch.cat([on_globals, local], dim=-1).masked_fill(hidden, 0.0))
    if found.index.shape[1]:
        rows = dense.gather(2, found.index[:, None, :, None].expand(-1, heads, -1, length)).transpose(2, 3)
        rows = F.pad(rows, (0, 0, 0, -length % context.multiple))
        context.global_attentions.append(torch.where(found.real[:, None, None, :], rows, 1 / rows.shape[2]))


def banded(dense: Tensor, reach: int) -> Tensor:
    """Take from each row the weights on its neighbours. Shapes: [B, H, L, L] -> [B, H, L, 2·reach + 1]."""
    length = dense.shape[-1]
    places = torch.arange(length, device=dense.device)[:, None] + torch.arange(2 * reach + 1, device=dense.device)
    return F.pad(dense, (reach, reach)).gather(-1, places.expand(*dense.shape[:2], -1, -1))
