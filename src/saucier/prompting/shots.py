"""Which solved examples stand before a question: drawn for each question by (seed, draw, question)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from saucier.prompting.questions import Question
from saucier.text.rows import generator

STREAM = 77
"""Tells these random numbers from others of the same seed."""


def drawn(train: Sequence[Question], question: Question, count: int, *, balanced: bool, key: tuple[int, ...]) \
        -> list[Question]:
    """Draw `count` examples, none of them the question itself, in random order.

    `key` is (seed, draw, number of the question). Balanced: the golds take turns, each in random order.
    """
    random = generator(*key[:1], STREAM, *key[1:])
    order = [place for place in random.permutation(len(train)).tolist() if train[place].prompt != question.prompt]
    if balanced:
        order = taking_turns(order, [train[place].gold for place in order])
    chosen = order[:count]
    return [train[place] for place in np.array(chosen, dtype=np.int64)[random.permutation(len(chosen))].tolist()]


def taking_turns(order: Sequence[int], golds: Sequence[str]) -> list[int]:
    """Put one of each gold first, then a second of each, and so on."""
    seen: dict[str, int] = {}
    turns = []
    for gold in golds:
        seen[gold] = seen.get(gold, 0) + 1
        turns.append(seen[gold])
    return [place for _, place in sorted(zip(turns, order, strict=True), key=lambda pair: pair[0])]
