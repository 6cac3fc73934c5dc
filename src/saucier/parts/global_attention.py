"""Global tokens: where they are and what they see, ETC's global input, and published weights of sliding windows.

Letters: B batch, G global tokens, L length, H heads, E head width, D dim, N most global tokens of a row, W reach
of a window to a side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.inputs import Side
from saucier.parts.masks import Mask, Span, pad_start, within_documents
from saucier.parts.visibility import allowed_pairs, find_global_tokens


@dataclass(slots=True)
class GlobalPositions:
    """Where the real global tokens of each row are; rows that have fewer than others are filled up."""

    index: Tensor
    """[B, N]."""
    real: Tensor
    """[B, N], False where a row is filled up."""

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Row and position of every global token."""
        row, number = self.real.nonzero(as_tuple=True)
        return row, self.index[row, number]

    def of_row(self, row: int) -> tuple[int, ...]:
        """Return the positions in one row, in order."""
        return tuple(self.index[row][self.real[row]].tolist())


def find_global_positions(visibility: c.Visibility, context: Context) -> GlobalPositions:
    """Return where the global tokens of this pass are, found once for all layers."""
    def find() -> GlobalPositions:
        span = replace(context.span, padding=context.real_keys())
        tokens = torch.stack(torch.broadcast_tensors(
            *(find_global_tokens(term.otherwise, span) for term in c.global_terms(visibility)))).any(0)
        tokens = tokens.expand(context.rows, -1) if span.padding is None else tokens & span.padding
        counts = tokens.sum(1)
        index = tokens.long().argsort(dim=1, descending=True, stable=True)[:, :int(counts.max())]
        return GlobalPositions(index, torch.arange(index.shape[1], device=index.device) < counts[:, None])

    return context.once(("global places", visibility), find)


def mask_global_rows(attention: c.SelfAttention, found: GlobalPositions, context: Context) -> Mask:
    """Return which keys the global tokens see. Shapes: -> [B, 1 or H, N, L]."""
    visibility = attention.visibility
    span = replace(context.span, padding=context.real_keys(), heads=attention.projection.heads)
    keys = torch.arange(span.keys, device=span.device)[None]
    rows = [visible_keys_at(visibility, index, keys, span.of_row(row)) for row, index in enumerate(found.index)]
    return Mask(allowed=torch.cat(rows), whole=False, device=span.device)


def visible_keys_at(visibility: c.Visibility, places: Tensor, keys: Tensor, span: Span) -> Tensor:
    """Return which keys queries at some places see. Shapes: places [N], keys [1, L] -> [1, 1 or H, N, L]."""
    allowed = allowed_pairs(visibility, places[:, None], keys, span).expand(-1, -1, len(places), keys.shape[1])
    if span.padding is not None:
        allowed = allowed & span.padding[:, None, None]
    if span.query_documents is not None and span.key_documents is not None:
        asking = span.query_documents[:, places - span.start, None]
        allowed = allowed & within_documents(asking, span.key_documents[:, None])[:, None]
    return allowed


def publish_weights(visibility: c.Visibility, context: Context) -> None:
    """Bring the last recorded weights into the form that a sliding window with global tokens is published in.

    Local weights become [B, H, L, N + 2W + 1]: first those on global keys, then those on the neighbours from W before
    to W after, without the global ones; rows of global tokens are zero there, and are found in `global_attentions`,
    [B, H, L, N], by key. L is then a multiple of the widest window, and a row that lacks a token has equal weights.
    Other visibilities keep [B, H, L, L].
    """
    reach = c.sliding_reach(visibility)
    if reach is None:
        return
    dense, found = context.attentions.pop(), find_global_positions(visibility, context)
    batch, heads, length, _ = dense.shape
    tokens = torch.zeros(batch, length, dtype=torch.bool, device=dense.device).index_put(
        found.pairs, torch.ones((), dtype=torch.bool, device=dense.device))
    hidden, known = tokens[:, None, :, None], context.real_keys()
    local = take_band(dense.masked_fill(tokens[:, None, None, :], 0.0), reach)
    column = found.index[:, None, None, :].expand(-1, heads, length, -1)
    on_globals = dense.gather(-1, column) * found.real[:, None, None, :]
    hidden = hidden if known is None else hidden | ~known[:, None, :, None]
    context.attentions.append(torch.cat([on_globals, local], dim=-1).masked_fill(hidden, 0.0))
    if found.index.shape[1]:
        rows = dense.gather(2, found.index[:, None, :, None].expand(-1, heads, -1, length)).transpose(2, 3)
        rows = F.pad(rows, (0, 0, 0, -length % context.multiple))
        context.global_attentions.append(torch.where(found.real[:, None, None, :], rows, 1 / rows.shape[2]))


def take_band(dense: Tensor, reach: int) -> Tensor:
    """Take from each row the weights on its neighbours. Shapes: [B, H, L, L] -> [B, H, L, 2·reach + 1]."""
    length = dense.shape[-1]
    places = torch.arange(length, device=dense.device)[:, None] + torch.arange(2 * reach + 1, device=dense.device)
    return F.pad(dense, (reach, reach)).gather(-1, places.expand(*dense.shape[:2], -1, -1))


def prepend_global_input(stack: c.Stack, side: Side) -> None:
    """Put `global_input_ids` [B, G] before the text of one side; what the model gives is that of the text.

    Without them the first tokens of the text are global. Raises `InputError` where they do not fit the model.
    """
    given: Any = side.inputs["global_input_ids"]
    named = {term.otherwise for part in stack.attentions() for term in c.global_terms(part.visibility)}
    counts = {one.count for one in named if isinstance(one, c.FirstTokens)}
    if counts != {given.shape[1]} or given.shape[0] != len(side.ids):
        raise InputError(f"global tokens of shape {list(given.shape)}", where="global_input_ids",
                         remedy=f"give [{len(side.ids)}, {min(counts)}]" if counts
                         else "leave them out: this model has no global input")
    if side.vectors is not None or side.documents is not None or side.cache is not None or side.prompt:
        raise InputError("a global input goes with the ids of one text a row", where="global_input_ids",
                         remedy="leave out inputs_embeds, documents, a cache and a prompt")
    side.make_room(given.shape[1])
    side.put_before(given)
    side.named = pad_start(side.named, given.shape[1], 1)
