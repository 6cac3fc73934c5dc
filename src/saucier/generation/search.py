"""The one decoding loop, and the search in which every row goes its own way.

Beam search is in `beams.py`, whole texts in `mask_predict.py`, texts with open places in `chains.py`.
Letters: B prompts, R rows, L length, V vocab.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from saucier.generation.choosing import Choice
from saucier.generation.processors import Processor, process
from saucier.generation.stopping import Stop, ended

Listener = Callable[[Tensor], None]
"""Called with the new tokens [R] after each step."""


@dataclass(slots=True)
class Step:
    """What a search decided."""

    tokens: Tensor
    """[R], the next token of each row; of texts that are not written from left to right [R, L], all tokens."""
    rows: Tensor | None = None
    """[R], the row that each row continues; None: itself."""
    places: Tensor | None = None
    """[R], the place of each row that is asked about, where it is one and not the next."""


class Search(Protocol):
    """Which tokens to write: holds the rows so far."""

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to write."""

    def advance(self, logits: Tensor) -> Step:
        """Take the scores of the next token, [R, V] float32, and decide."""

    def result(self) -> Tensor:
        """The rows, prompt included. Shapes: -> [rows, L]."""


class Feed(Protocol):
    """The model, as a search sees it: tokens in, scores of the next token out."""

    def first(self) -> Tensor:
        """Read the prompt. Shapes: -> [R, V], float32."""

    def next(self, step: Step) -> Tensor:
        """Read one more token in each row. Shapes: -> [R, V], float32."""


def decode(feed: Feed, search: Search, listener: Listener | None = None) -> Tensor:
    """Write until the search is finished: the only decoding loop. Shapes: -> [rows, L]."""
    logits = feed.first()
    while True:
        step = search.advance(logits)
        if listener is not None:
            listener(step.tokens)
        if search.finished:
            return search.result()
        logits = feed.next(step)


@dataclass(frozen=True, slots=True)
class Rules:
    """What every search follows."""

    processors: tuple[Processor, ...]
    stops: tuple[Stop, ...]
    limit: int
    """Length of prompt and text together at which all rows end."""
    fill: int
    """Stands behind the end of a row."""


class RowSearch:
    """Every row goes its own way: greedy, or by sampling."""

    def __init__(self, prompt: Tensor, rules: Rules, choice: Choice) -> None:
        """Begin at the prompt [R, L]."""
        self.rules, self.choice = rules, choice
        self.ids = prompt.new_full((prompt.shape[0], rules.limit), rules.fill)
        self.ids[:, :prompt.shape[1]] = prompt
        self.length = prompt.shape[1]
        self.ended = torch.zeros(prompt.shape[0], dtype=torch.bool, device=prompt.device)

    @property
    def finished(self) -> bool:
        """Whether every row has ended, or the limit is reached."""
        return self.length == self.rules.limit or bool(self.rules.stops and self.ended.all())

    def advance(self, logits: Tensor) -> Step:
        """Choose the next token of every row; a row that has ended is filled. Shapes: logits [R, V]."""
        scores = process(self.rules.processors, self.ids[:, :self.length], logits)
        tokens = self.choice(scores, 1)[:, 0]
        if self.rules.stops:
            tokens = tokens.masked_fill(self.ended, self.rules.fill)
        self.ids[:, self.length] = tokens
        self.length += 1
        if self.rules.stops:
            self.ended = self.ended | ended(self.rules.stops, self.ids[:, :self.length])
        return Step(tokens)

    def result(self) -> Tensor:
        """The rows as far as the longest. Shapes: -> [R, L]."""
        return self.ids[:, :self.length]
