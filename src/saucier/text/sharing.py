"""Texts that share rows, each as if it stood alone: which stand together, and where their tokens are.

Axes: N texts, R rows, L positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows import PADDING, Ints


def shared_bins(lengths: Ints, room: int) -> list[Ints]:
    """Say which texts share a row, so that none of its sides has more than `room` tokens, or the longest text alone.

    The longest first, each into the fullest row that still takes it. Shapes: lengths [N, sides] -> the texts of each
    row. Source: Johnson et al. 1974, "best-fit decreasing", here for rows of several sides.
    """
    free = np.full(lengths.shape, max(room, int(lengths.max(initial=1))), dtype=np.int64)
    row, count = np.zeros(len(lengths), dtype=np.int64), 0
    for text in np.argsort(-lengths.max(axis=1), kind="stable").tolist():
        fits = np.flatnonzero((free[:count] >= lengths[text]).all(axis=1))
        number = int(fits[free[fits].sum(axis=1).argmin()]) if len(fits) else count
        count = max(count, number + 1)
        free[number] -= lengths[text]
        row[text] = number
    return np.split(np.argsort(row, kind="stable"), np.cumsum(np.bincount(row, minlength=count))[:-1])


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
