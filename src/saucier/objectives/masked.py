"""The masked corruption: some tokens of each row are hidden and become its targets. Numpy only until the last lines.

Randomness comes from one generator per row, seeded by the row's number, so that micro-batches and processes do not
change it. Letters: B batch, L length, K chosen tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, required, tensor
from saucier.objectives.forms import MarkForm, mark_form
from saucier.objectives.units import Chooser, Chosen, Line, chooser
from saucier.text.rows import Ints, Rows, generator

MASKING, COPIES = 1, 10
"""Streams of random numbers, one for each purpose."""
FOR_EVER = 2**32
"""Stands for the step where a mask is the same at every step; further masks of the same row stand behind it."""


@dataclass(frozen=True, slots=True)
class Fates:
    """What becomes of a chosen token. Source: Devlin et al. 2019, §3.1, arXiv:1810.04805."""

    mask: float
    random: float
    mask_id: int
    ordinary: Ints
    """The ids that a token may be replaced by; the paper's code may draw special ones, too."""

    def __call__(self, tokens: Ints, found: Chosen, random: np.random.Generator) -> None:
        """Hide the chosen tokens of one row, in place. Shapes: tokens [L]."""
        count = len(found.places)
        fate = random.random(count)[found.fates]
        others = random.choice(self.ordinary, count)
        tokens[found.places[fate < self.mask]] = self.mask_id
        swapped = (fate >= self.mask) & (fate < self.mask + self.random)
        tokens[found.places[swapped]] = others[swapped]


@dataclass(frozen=True, slots=True)
class MaskedCorruption:
    """Hides tokens for a model that sees both sides. Source: Devlin et al. 2019, §3.1 and appendix A.1,
    arXiv:1810.04805.

    As in the paper's code a row has a fixed budget of targets: `rate` times its ordinary tokens, rounded, at least one.
    """

    config: c.Masked
    special: Ints
    chooser: Chooser
    fates: Fates
    form: MarkForm
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Hide tokens. Shapes: rows [B, L] -> input_ids, labels [B, L].

        Beside: next_sentence [B], 1 = the second piece does not follow the first; span_left, span_right [B, L], the
        places around each target's span.
        """
        tokens, lines = rows.tokens.copy(), self.lines(rows)
        around = np.full((3, *tokens.shape), IGNORED)
        for number, line in enumerate(lines):
            random = generator(seed, MASKING, *self.place(rows, number, seed, step))
            if not (count := int(line.free.sum())):
                continue
            found = self.chooser(line, max(1, round(self.config.rate * count)), random)
            around[:, number, found.places] = line.tokens[found.places], found.before, found.behind
            self.fates(tokens[number], found, random)
        batch = self.form(rows, tokens, around[0])
        return batch | self.beside(rows, around)

    def lines(self, rows: Rows) -> list[Line]:
        """Say of each row what may be hidden."""
        wanted = np.arange(rows.tokens.shape[1]) >= rows.context[:, None]
        free = rows.mask & ~np.isin(rows.tokens, self.special) & wanted
        borders = np.ones_like(free)
        borders[:, 1:] = rows.documents[:, 1:] != rows.documents[:, :-1]
        return [Line(*line) for line in zip(rows.tokens, free, borders, strict=True)]

    def place(self, rows: Rows, number: int, seed: int, step: int) -> tuple[int, int]:
        """Return the stream of a row's mask: by its place in training, or by that in the text where masks stay."""
        if self.config.dynamic:
            return step, int(rows.row[number])
        copies = self.config.duplicates
        copy = int(generator(seed, COPIES, step, int(rows.row[number])).integers(copies)) if copies > 1 else 0
        return FOR_EVER + copy, int(rows.item[number])

    def beside(self, rows: Rows, around: Ints) -> Batch:
        """Return what the companions learn from."""
        batch: Batch = {}
        if self.config.relation is not None:
            batch |= {"next_sentence": tensor(rows.sentence_label), "token_type_ids": tensor(rows.segments)}
        if self.config.boundary is not None:
            batch |= {"span_left": tensor(around[1]), "span_right": tensor(around[2])}
        return batch


def build_masked(config: c.Masked, given: Given) -> MaskedCorruption:
    """Check the shares, the tokenizer and the body. Raises `InputError`."""
    total = config.mask + config.random
    if total > 1:
        raise InputError(f"mask + random is {total:g}, more than 1", where="objective", remedy="lower one of them")
    ids, mask = given.ids, required(given.ids.mask, "mask", "masked")
    fates = Fates(config.mask, config.random, mask, ids.ordinary())
    return MaskedCorruption(config, np.array(ids.special, dtype=np.int64), chooser(config.choice, given), fates,
                            mark_form(given))
