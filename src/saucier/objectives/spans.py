"""Denoising: a text becomes a source and a target, by any `Noise`; here, runs of tokens are dropped and given back.

Letters: B batch, L length, S source, T target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, Given, TokenIds
from saucier.objectives.forms import PairForm, pair_form
from saucier.text.rows import PairRows, Rows, generator

Ints = NDArray[np.int64]
SPANS = 2
"""Stream of random numbers."""


class Noise(Protocol):
    """What makes a source and a target of a text."""

    def __call__(self, tokens: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Make them. Shapes: tokens [L] -> [S], [T]."""

    def most(self, length: int) -> tuple[int, int]:
        """Return how long source and target of a text of `length` tokens are at most; both grow with it."""


@dataclass(frozen=True, slots=True)
class Denoising:
    """Each row becomes a source and a target. A row is one text here, also where it holds several documents."""

    noise: Noise
    form: PairForm
    filler: int
    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The longest row of which the model sees `length` tokens at most."""
        low, high = 2, 2 * length
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.form.length(*self.noise.most(middle)) <= length
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Make noise. Shapes: rows [B, L] -> a batch of source and target."""
        pairs = [self.noise(tokens[real], generator(seed, SPANS, step, int(row)))
                 for tokens, real, row in zip(rows.tokens, rows.mask, rows.row, strict=True)]
        source, source_lengths = padded([source for source, _ in pairs], self.filler)
        target, target_lengths = padded([target for _, target in pairs], self.filler)
        return self.form(PairRows(source, target, source_lengths, target_lengths, rows.row, rows.item))


@dataclass(frozen=True, slots=True)
class DroppedSpans:
    """Replaces spans by sentinels; the target lists each sentinel and its span.

    The source ends with eos, and so does the target, as in the paper's code; its closing sentinel is there too.
    Source: Raffel et al. 2020, §3.1.4 and fig. 2, arXiv:1910.10683.
    """

    config: c.SpanCorruption
    ids: TokenIds

    def counts(self, length: int) -> tuple[int, int]:
        """Return how many tokens of a text are dropped, and in how many spans; no span where it is too short."""
        count = max(1, round(self.config.rate * length))
        return count, min(max(1, round(count / self.config.mean_span)), length - count, len(self.ids.sentinels) - 1)

    def most(self, length: int) -> tuple[int, int]:
        """The kept tokens, the spans' sentinels and eos; the dropped ones, a sentinel more and eos."""
        count, spans = self.counts(length)
        return length - count + spans + 1, count + spans + 2

    def __call__(self, tokens: Ints, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Split one text. Shapes: tokens [L] -> [S], [T]."""
        end = [] if self.ids.eos is None else [self.ids.eos]
        tokens = tokens[:-1] if len(tokens) and tokens[-1] in end else tokens
        count, spans = self.counts(len(tokens))
        if spans < 1:
            return array([*tokens, *end]), array([self.ids.sentinels[0], *end])
        kept, dropped = pieces(len(tokens) - count, spans, random), pieces(count, spans, random)
        source: list[int] = []
        target: list[int] = []
        place = 0
        for sentinel, keep, lost in zip(self.ids.sentinels, kept, dropped, strict=False):
            source += [*tokens[place:place + keep], sentinel]
            target += [sentinel, *tokens[place + keep:place + keep + lost]]
            place += keep + lost
        return array([*source, *end]), array([*target, self.ids.sentinels[spans], *end])


def array(ids: list[int]) -> Ints:
    """Make an int64 array."""
    return np.array(ids, dtype=np.int64)


def pieces(total: int, count: int, random: np.random.Generator) -> Ints:
    """Cut `total` into `count` positive lengths, all cuts equally likely."""
    cuts = np.sort(random.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]])).astype(np.int64)


def padded(rows: list[Ints], filler: int) -> tuple[Ints, Ints]:
    """Put rows of unequal length into one array. Shapes: -> [B, longest], [B] lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    out = np.full((len(rows), int(lengths.max(initial=1))), filler, dtype=np.int64)
    for number, row in enumerate(rows):
        out[number, :len(row)] = row
    return out, lengths


def build_spans(config: c.SpanCorruption, given: Given) -> Denoising:
    """Check the tokenizer and the body. Raises `InputError` when there are too few sentinels."""
    if len(given.ids.sentinels) < 2:
        raise InputError("the tokenizer has no sentinel tokens, which span corruption needs",
                         where="tokenizer.special.sentinels",
                         remedy="set sentinels: 100")
    return Denoising(DroppedSpans(config, given.ids), pair_form(given), given.ids.filler)
