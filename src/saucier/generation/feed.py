"""The model as a search sees it: the prompt is read once into a key-value cache, then one token a row and step.

Letters: B prompts, R rows (prompts times copies), L length, S source length, D dim, V vocab.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from saucier.generation.search import Step
from saucier.model import Transformer


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known before the first new token."""

    ids: Tensor
    """[B, L] for the decoder: the prompt, or the start token of an encoder-decoder."""
    mask: Tensor | None = None
    """[B, L], 1 where `ids` is real; None: everywhere."""
    source: Tensor | None = None
    """[B, S] for the encoder of an encoder-decoder."""
    source_mask: Tensor | None = None
    """[B, S]; None: all of the source is real."""

    @property
    def padding(self) -> Tensor | None:
        """[B], the padding at the left of each row; None where there is none."""
        return None if self.mask is None else self.mask.argmax(1)


class CachedFeed:
    """Feeds a model through its key-value cache. Source: Shazeer 2019, §2.4, arXiv:1911.02150, for what is cached.

    The prompt, and the source, are read once for all copies of a row (beams, samples).
    """

    def __init__(self, model: Transformer, prompt: Prompt, *, copies: int, capacity: int) -> None:
        """`copies` rows for each prompt, of up to `capacity` tokens."""
        self.model, self.prompt, self.copies = model, prompt, copies
        self.cache = model.new_cache(prompt.ids.shape[0], capacity)
        self.mask, self.source_mask = prompt.mask, prompt.source_mask
        self.positions = None if prompt.mask is None else prompt.mask.sum(1)
        self.encoded: Tensor | None = None

    def first(self) -> Tensor:
        """Read the prompt, then give every row its copies. Shapes: -> [R, V], float32."""
        prompt = self.prompt
        if prompt.source is None:
            places = None if prompt.mask is None else (prompt.mask.cumsum(1) - 1).clamp(min=0)
            output = self.model(prompt.ids, prompt.mask, position_ids=places, cache=self.cache, last_only=True)
        else:
            output = self.model(prompt.source, prompt.source_mask, decoder_input_ids=prompt.ids, cache=self.cache,
                                last_only=True)
            self.encoded = output.encoder_last_hidden_state
        if self.copies > 1:
            self.spread(torch.arange(len(prompt.ids), device=prompt.ids.device).repeat_interleave(self.copies))
        logits: Tensor = output.logits[:, -1].float()
        return logits.repeat_interleave(self.copies, 0) if self.copies > 1 else logits

    def spread(self, rows: Tensor) -> None:
        """Repeat all that was read for a prompt. Shapes: rows [R]."""
        self.cache.reorder(rows)
        self.mask, self.positions, self.source_mask, self.encoded = (
            None if x is None else x.index_select(0, rows)
            for x in (self.mask, self.positions, self.source_mask, self.encoded))

    def next(self, step: Step) -> Tensor:
        """Read one token a row. Shapes: -> [R, V], float32."""
        if step.rows is not None:
            self.follow(step.rows)
        tokens = step.tokens[:, None]
        if self.encoded is None:
            output = self.model(tokens, self.grown_mask(), position_ids=self.next_positions(), cache=self.cache,
                                last_only=True)
        else:
            output = self.model(None, self.source_mask, encoder_output=self.encoded, decoder_input_ids=tokens,
                                cache=self.cache, last_only=True)
        return output.logits[:, -1].float()  # type: ignore[no-any-return]

    def follow(self, rows: Tensor) -> None:
        """Let each row continue another one of the same prompt, so that masks and the source's keys stay. Shapes: rows [R]."""
        self.cache.reorder(rows, same_source=True)

    def grown_mask(self) -> Tensor | None:
        """Return the mask with the new token, which is real; None without padding. Shapes: -> [R, L]."""
        if self.mask is not None:
            self.mask = torch.cat([self.mask, self.mask.new_ones(len(self.mask), 1)], dim=1)
        return self.mask

    def next_positions(self) -> Tensor | None:
        """Return each row's position, padding not counted; None where it is the cache's length. Shapes: -> [R, 1]."""
        if self.positions is None:
            return None
        self.positions = self.positions + 1
        return self.positions[:, None] - 1


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Switch dropout and gradients off for a while."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if was_training:
            model.train()
