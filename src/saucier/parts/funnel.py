"""What runs Funnel-Transformer's layout of blocks: pooling between stages, and repeating at the end.

Letters: B batch, L length, P pooled length, D dim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.parts.context import Context
from saucier.parts.pooled_distances import Places, QueriesAndKeys


class BlockRunner(Protocol):
    """A stack, as far as its layout needs it."""

    config: c.Stack

    def apply_block(self, number: int, x: Tensor, context: Context) -> Tensor:
        """Apply a block, the first being number 0."""


def run_funnel(stack: BlockRunner, x: Tensor, context: Context, record: list[Tensor] | None) -> Tensor:
    """Apply the blocks of all stages, and those after them. Shapes: x [B, L, D] -> [B, L, D], or [B, P, D] without any.

    Source: Dai et al. 2020, §2.2-2.3, arXiv:2006.03236.
    """
    layout = stack.config.layers
    assert isinstance(layout, c.Funnel), "the table's choice"
    if context.span.query_documents is not None:
        raise InputError("a funnel pools neighbours, whatever document they are of", where="documents",
                         remedy="give one text a row")
    places = Places(0, 1, context.inputs.get("token_type_ids"))
    whole = now = enter_length(context, places, x.shape[1], context.span.padding)
    states: list[Tensor] = []
    number = 0
    for stage, (size, turns) in enumerate(zip(layout.sizes, layout.repeats, strict=True)):
        for turn in range(size * turns):
            states.append(x)
            if turn == 0 and stage and x.shape[1] > 1 + layout.separate_first:
                x, now = enter_stage(stack, layout, number, x, now)
            else:
                x = stack.apply_block(number, x, now)
            number += 1
    if layout.after is not None:
        states.append(x)
        first = states[layout.sizes[0]]
        x = first + repeat_rows(layout, x, first.shape[1])
    for last in range(number, number + (layout.after or 0)):
        states.append(x)
        x = stack.apply_block(last, x, whole)
    if record is not None:
        record += states
    return x


def enter_length(context: Context, places: Places, length: int, padding: Tensor | None) -> Context:
    """Return the pass among rows of another length, for which masks and distances are made again."""
    span = replace(context.span, queries=length, keys=length, padding=padding)
    return replace(context, span=span, layout_state=QueriesAndKeys(places, places), made={}, key_rows=None)


def enter_stage(stack: BlockRunner, layout: c.Funnel, number: int, x: Tensor,
                context: Context) -> tuple[Tensor, Context]:
    """Pool the rows, and apply the first block of a stage to them. Shapes: x [B, L, D] -> [B, P, D].

    A pooled vector is padding where either of its two is, as published.
    """
    assert isinstance(context.layout_state, QueriesAndKeys), "set where a length begins"
    keys, short = context.layout_state.keys, pool_rows(layout, x, layout.pooling)
    segments = None if keys.segments is None else take_rows(layout, keys.segments)
    step = 2 * keys.step
    places = Places(1 - step if layout.separate_first else 0, step, segments)
    padding = context.span.padding
    if padding is not None:
        padding = pool_rows(layout, (~padding.bool())[..., None].to(x.dtype), "max")[..., 0] == 0
    then = enter_length(context, places, short.shape[1], padding)
    if layout.query_only:
        reads = replace(context, key_rows=x, layout_state=QueriesAndKeys(places, keys))
        return stack.apply_block(number, short, reads), then
    return stack.apply_block(number, short, then), then


def pool_rows(layout: c.Funnel, x: Tensor, kind: str) -> Tensor:
    """Make one vector of two neighbours, the first token left alone. Shapes: [B, L, D] -> [B, P, D]."""
    if layout.separate_first:
        x = torch.cat([x[:, :1], x[:, :-1] if layout.truncate else x], dim=1)
    pool = F.avg_pool1d if kind == "mean" else F.max_pool1d
    found: Tensor = pool(x.transpose(1, 2), 2, ceil_mode=True)
    return found.transpose(1, 2)


def take_rows(layout: c.Funnel, x: Tensor) -> Tensor:
    """Return the first of every two neighbours, the first token left alone. Shapes: [B, L] -> [B, P]."""
    if layout.separate_first:
        x = torch.cat([x[:, :1], x[:, :-1] if layout.truncate else x], dim=1)
    return x[:, ::2]


def repeat_rows(layout: c.Funnel, x: Tensor, length: int) -> Tensor:
    """Repeat pooled vectors for the tokens that they were made of, zeros where tokens were cut off.

    Shapes: [B, P, D] -> [B, L, D]. Source: Dai et al. 2020, §2.3.
    """
    stride = 2 ** (len(layout.sizes) - 1)
    alone = int(layout.separate_first and stride > 1)
    found = x[:, alone:].repeat_interleave(stride, dim=1)
    found = F.pad(found, (0, 0, 0, stride - 1)) if alone and layout.truncate else found
    return torch.cat([x[:, :alone], found[:, :length - alone]], dim=1)
