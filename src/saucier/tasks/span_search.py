"""The best pieces of a text by the logits of where an answer starts and ends. Letters: L length, W answer length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Span(NamedTuple):
    """A piece of a row: its score, and its first and last token."""

    score: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Told:
    """A piece of a context with its score."""

    text: str
    score: float


def best_spans(starts: Floats, ends: Floats, longest: int, count: int) -> Iterator[Span]:
    """Yield the `count` best of all spans of at most `longest` tokens, the best first; of equal ones the first.

    Logits of places that may not be told are -inf. Shapes: starts, ends [L].
    """
    length = len(starts)
    table = np.full((min(longest, length), length), -np.inf)
    for more in range(len(table)):
        table[more, :length - more] = starts[:length - more] + ends[more:]
    flat = table.T.ravel()
    enough = np.partition(flat, -count)[-count] if len(flat) > count else -np.inf
    places = np.flatnonzero((flat >= enough) & (flat > -np.inf))
    for place in places[np.argsort(-flat[places], kind="stable")][:count].tolist():
        first, more = divmod(place, len(table))
        yield Span(float(flat[place]), first, first + more)


def distinct(found: Sequence[Told], count: int) -> list[Told]:
    """Return the best answers, each text once, the best first; of equal ones the first."""
    best: dict[str, Told] = {}
    for one in sorted(found, key=lambda one: -one.score):
        best.setdefault(one.text, one)
    return list(best.values())[:count]


def probabilities(scores: Sequence[float]) -> list[float]:
    """Return the softmax of scores."""
    if not scores:
        return []
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]
