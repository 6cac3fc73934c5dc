"""Rows that come and go while others are written: one cache, and a prompt of any length in each of its rows.

All rows end at the same position of the cache, and those that are shorter begin later, as rows with padding at the
left do. So one pass reads a token of every row, whatever their lengths are, and each gets what it would get alone.
Letters: R rows, L length, V vocab.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saucier import config as c
from saucier.config.questions import fits_any_place, has_prefix
from saucier.errors import InputError
from saucier.generation.packed_weights import inference_view, use_packed_weights
from saucier.generation.rules import find_max_positions
from saucier.model import Transformer


class Slots:
    """A model that reads rows of different lengths together, and a cache with a place for each of them."""

    def __init__(self, model: Transformer, *, rows: int, capacity: int) -> None:
        """Make room for some rows of up to `capacity` tokens each, prompts included.

        Raises `InputError` for a model whose rows cannot begin at different places, and beyond its positions.
        """
        if reason := find_obstacle(model):
            raise InputError(reason, where="model", remedy="generate from prompts of one length at a time")
        room = find_max_positions(model.config)
        if room is not None and capacity > room:
            raise InputError(f"{capacity} tokens are more than the model's {room} positions", where="capacity",
                             remedy=f"use {room} or less")
        self.model = inference_view(use_packed_weights(model))
        self.cache = self.model.new_cache(rows, capacity)
        self.cache.lengths = torch.zeros(rows, dtype=torch.long, device=model.device)

    @property
    def lengths(self) -> Tensor:
        """[R], tokens of each row; 0: it is free."""
        assert self.cache.lengths is not None, "__init__ sets it"
        return self.cache.lengths

    @torch.inference_mode()
    def admit(self, row: int, ids: Tensor) -> Tensor:
        """Read a prompt into a free row. Shapes: ids [L] -> [V], the scores of the next token.

        Raises `InputError` for a row that is taken, and for a prompt that is empty or longer than the capacity.
        """
        if self.lengths[row]:
            raise InputError(f"row {row} is taken", where="row", remedy="release it, or take another")
        if not len(ids):
            raise InputError("the prompt is empty", where="input_ids", remedy="give at least one token")
        ids = ids.to(self.lengths.device)[None]
        alone = self.model.new_cache(1, ids.shape[1])
        output = self.model(ids, cache=alone, last_only=True)
        self.cache.admit(row, alone)
        return output.logits[0, -1].float()  # type: ignore[no-any-return]

    def release(self, row: int) -> None:
        """Free a row."""
        self.cache.release(row)

    @torch.inference_mode()
    def next(self, tokens: Tensor) -> Tensor:
        """Read one more token in each row; what free rows read and give means nothing. Shapes: [R] -> [R, V].

        Raises `InputError` where the longest row fills the capacity.
        """
        self.cache.make_room(1)
        length = self.cache.length + 1
        real = torch.arange(length, device=tokens.device) >= self.cache.length - self.lengths[:, None]
        output = self.model(tokens[:, None], real, places=self.lengths[:, None], cache=self.cache, last_only=True)
        return output.logits[:, -1].float()  # type: ignore[no-any-return]


def find_obstacle(model: Transformer) -> str | None:
    """Say why a model's rows cannot begin at different places of one cache; None where they can."""
    stack = model.config.decoder
    if stack is None or model.config.encoder is not None or model.config.embed.languages is not None:
        return "only a decoder alone reads rows that come and go"
    if model.front is not None:
        return "the model has a prefix or a prompt before the text"
    for part in (residual.inner for block in stack.blocks() for residual in block.sublayers):
        match part:
            case c.SelfAttention(visibility=seen) if has_prefix(seen) or not fits_any_place(seen):
                return "what the model's attention sees is counted from the row's beginning"
    return find_state(stack)


def find_state(stack: c.Stack) -> str | None:
    """Say what a stack's pass over some tokens depends on besides these, their places, and keys and values before them.
    """
    if stack.memory is not None or stack.convolution is not None:
        return "the model reads what is before a row: a memory, or neighbours"
    for part in (residual.inner for block in stack.blocks() for residual in block.sublayers):
        match part:
            case c.SelfAttention(positions=c.Rotary(scaling=c.DynamicScaling() | c.LongRope() as scaling)):
                return f"rotations with the scaling {scaling.kind} depend on the longest row of a pass"
            case c.SelfAttention(kernel=kernel) if kernel.any_place and kernel.caches_keys:
                continue
            case c.SelfAttention():
                return f"attention with the kernel {part.kernel.kind} counts from the row's beginning, or keeps sums"
            case c.Experts(capacity=int()):
                return "experts with a capacity drop tokens of one row for those of another"
            case c.CrossAttention() | c.FeedForward() | c.GatedFeedForward() | c.Experts() | c.CustomSublayer(
                    mixes="nothing"):
                continue
            case _:
                return f"a sublayer of kind {part.kind} keeps states, or reads another text"
    return None
