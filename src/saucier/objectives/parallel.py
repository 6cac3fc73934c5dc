"""Hidden tokens in the texts of pairs: the pairs become rows, and any masking of rows does the rest.

Letters: B batch, L length, S source, T target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Corruption, Given, tensor
from saucier.objectives.fit import tells_languages
from saucier.text.rows import PADDING, Ints, PairRows, Rows, stacked

SIDES = 2


@dataclass(frozen=True, slots=True)
class ParallelCorruption:
    """Makes rows of pairs and hides tokens in them."""

    layout: Callable[[PairRows], Rows]
    masking: Corruption[Rows]
    texts: int
    """How many texts share a row."""
    told: bool
    """Whether the model is told the language of each token: 0 on the source's side, 1 on the target's."""
    language: int | None = None
    """The only language that is learned; None: both."""
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The most tokens of one side, so that the model sees `length` of the whole row."""
        return length // self.texts

    def __call__(self, rows: PairRows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: source [B, S], target [B, T] -> input_ids, labels [B or 2B, L]."""
        laid = self.layout(rows)
        batch = self.masking(laid if self.told else replace(laid, languages=None), seed=seed, step=step)
        if self.language is not None and laid.languages is not None:
            batch["labels"] = batch["labels"].masked_fill(tensor(laid.languages) != self.language, IGNORED)
        return batch


def together(rows: PairRows) -> Rows:
    """Put each target behind its source, its places counted from 0 again. Shapes: -> [B, longest].

    Both sides see each other. Source: Lample and Conneau 2019, §3.4, arXiv:1901.07291.
    """
    first, second = rows.source_lengths[:, None], rows.target_lengths[:, None]
    place = np.arange(int((first + second).max(initial=1)))
    behind = np.broadcast_to(place - first, (len(rows), len(place)))
    own, other = behind < 0, (behind >= 0) & (behind < second)
    tokens = np.where(other, taken(rows.target, behind), taken(rows.source, np.broadcast_to(place, behind.shape)))
    return text_rows(np.where(own | other, tokens, 0), own | other, np.where(other, behind, place), other * 1,
                     (rows.row, rows.item))


def apart(rows: PairRows) -> Rows:
    """Make two rows of each pair, all sources first. Shapes: -> [2B, longest]."""
    sides = ((rows.source, rows.source_mask), (rows.target, rows.target_mask))
    return stacked([text_rows(tokens, mask, np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape),
                              np.full_like(tokens, side), (SIDES * rows.row + side, SIDES * rows.item + side))
                    for side, (tokens, mask) in enumerate(sides)])


def taken(tokens: Ints, places: Ints) -> Ints:
    """Read tokens at places of each row; anything where a place is outside. Shapes: [B, S], [B, L] -> [B, L]."""
    found: Ints = np.take_along_axis(tokens, places.clip(0, tokens.shape[1] - 1), axis=1)
    return found


def text_rows(tokens: Ints, real: NDArray[np.bool_], places: Ints, languages: Ints, names: tuple[Ints, Ints]) -> Rows:
    """Make rows of one text each. Shapes: all [B, L], but `names` (numbers of rows and of items) [B]."""
    none = np.zeros(len(tokens), dtype=np.int64)
    row, item = names
    return Rows(tokens=tokens, documents=np.where(real, 0, PADDING), positions=np.where(real, places, 0),
                segments=np.zeros_like(tokens), context=none, sentence_label=none, row=row, item=item,
                languages=languages.astype(np.int64))


def build_parallel(config: c.Parallel, masking: Corruption[Rows], given: Given) -> ParallelCorruption:
    """Look at the body."""
    told = given.body is not None and tells_languages(config, given.body)
    match config:
        case c.TranslationMasked():
            return ParallelCorruption(together, masking, SIDES, told)
        case c.MaskedSides():
            return ParallelCorruption(apart, masking, 1, told)
