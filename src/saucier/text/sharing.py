"""Texts that share rows, each as if it stood alone: which stand together, and where their tokens are.

Axes: N texts, R rows, L positions.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows import PADDING, Ints


def shared_bins(lengths: Ints, room: int) -> list[Ints]:
    """Say which texts share a row, so that none of its sides has more than `room` tokens, or the longest text alone.

    The longest first, each into the fullest row that still takes it. Shapes: lengths [N, sides] -> the texts of each
    row. Source: Johnson et al. 1974, "best-fit decreasing", at most 11/9 of the fewest rows and a few for one side;
    here for rows of several sides.
    """
    whole, sizes = max(room, int(lengths.max(initial=1))), lengths.tolist()
    rows: list[list[int]] = []
    left: list[list[int]] = []  # room on each side of a row
    free: list[tuple[int, int]] = []  # (room on all its sides, row), sorted
    for text in np.argsort(-lengths.max(axis=1), kind="stable").tolist():
        size = sizes[text]
        first = bisect.bisect_left(free, (sum(size), -1))
        place = next((one for one in range(first, len(free))
                      if all(map(operator.ge, left[free[one][1]], size))), len(free))
        if place == len(free):
            free.append((whole * len(size), len(rows)))
            rows.append([])
            left.append([whole] * len(size))
        _, row = free.pop(place)
        rows[row].append(text)
        left[row] = list(map(operator.sub, left[row], size))
        bisect.insort(free, (sum(left[row]), row))
    return [np.array(sorted(row), dtype=np.int64) for row in rows]


@dataclass(frozen=True, slots=True)
class Shared:
    """Where the tokens of one side stand in rows that several texts share. Shapes: [R, L] each."""

    text: Ints
    """The text of each token; PADDING where there is none."""
    place: Ints
    """Its place in the text, from 0."""

    @classmethod
    def of(cls, bins: Sequence[Ints], lengths: Ints) -> Shared:
        """Put the texts of each row one behind another. Shapes: lengths [N]."""
        texts = [np.repeat(row, lengths[row]) for row in bins]
        places = [np.concatenate([np.arange(length) for length in lengths[row]]) for row in bins]
        return cls(_filled(texts, PADDING), _filled(places, 0))

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where there is a token. Shapes: [R, L]."""
        return np.not_equal(self.text, PADDING)

    def taken(self, values: Ints, fill: int) -> Ints:
        """Return what stands at the tokens of texts. Shapes: [N, longest] -> [R, L]."""
        return np.where(self.mask, values[self.text, self.place], fill)


def _filled(rows: Sequence[Ints], fill: int) -> Ints:
    found = np.full((len(rows), max(map(len, rows), default=1)), fill, dtype=np.int64)
    for line, values in zip(found, rows, strict=True):
        line[:len(values)] = values
    return found
