"""Masking units: what is hidden whole (tokens, words, known n-grams), and the selection of units or runs of them
within a budget. Numpy only. Letters: B batch, L length, U units, K selected tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import ObjectiveInputs
from saucier.text.collocations import Words, find_words, hash_word_runs
from saucier.text.rows.batch import Hashes, Ints, mark_members
from saucier.text.tokenizer.word_boundaries import parse_marks

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MaskableRow:
    """One row: its tokens, which of them may be hidden, and where documents start. Shapes: all [L]."""

    tokens: Ints
    free: Flags
    borders: Flags


@dataclass(frozen=True, slots=True)
class SelectedTokens:
    """The tokens that are hidden. Shapes: all [K]."""

    places: Ints
    fates: Ints
    """Tokens with the same number become mask tokens together, or random ones, or stay."""
    before: Ints
    """The place before each token's run."""
    after: Ints
    """The place after it."""


@dataclass(frozen=True, slots=True)
class MaskingUnits:
    """What is hidden whole: unit u is made of the tokens from `begin[u]` to `end[u]`. Shapes: all [U]."""

    begin: Ints
    end: Ints
    joined: Flags
    """Whether a unit follows the one before directly."""


class TokenSelection(Protocol):
    """What chooses tokens."""

    def __call__(self, line: MaskableRow, budget: int, random: np.random.Generator) -> SelectedTokens:
        """Choose `budget` tokens of a row, or somewhat fewer."""


@dataclass(frozen=True, slots=True)
class SingleTokens:
    """Every token by itself."""

    def __call__(self, line: MaskableRow, budget: int, random: np.random.Generator) -> SelectedTokens:
        """Choose exactly as many tokens as the budget."""
        places = random.permutation(line.free.nonzero()[0])[:budget]
        return SelectedTokens(places, np.arange(len(places)), places - 1, places + 1)


class UnitCutter(Protocol):
    """What cuts a row into units."""

    def __call__(self, line: MaskableRow) -> MaskingUnits:
        """Cut."""


@dataclass(frozen=True, slots=True)
class WholeWords:
    """A unit is a word."""

    marks: Ints

    def __call__(self, line: MaskableRow) -> MaskingUnits:
        """Cut where words start."""
        words = find_words(line.tokens, line.free, line.borders, self.marks)
        return MaskingUnits(words.begin, words.end, words.joined)


@dataclass(frozen=True, slots=True)
class MarkedSpans:
    """A unit is a run of tokens that may be hidden; a border begins a new one. So given spans are hidden whole."""

    def __call__(self, line: MaskableRow) -> MaskingUnits:
        """Cut where spans begin and end."""
        before = np.concatenate([[False], line.free[:-1]])
        begin = (line.free & (~before | line.borders)).nonzero()[0]
        ends = np.concatenate([~line.free[1:] | line.borders[1:], [True]])
        end = (line.free & ends).nonzero()[0] + 1
        joined = np.concatenate([[False], begin[1:] == end[:-1]])[:len(begin)]
        return MaskingUnits(begin, end, joined)


@dataclass(frozen=True, slots=True)
class Phrases:
    """A unit is a known n-gram of words, or else a word; of those that overlap, the first and longest is taken."""

    marks: Ints
    known: tuple[Hashes, ...]
    """The hashes of the n-grams of two words, of three, ...; each sorted."""

    def __call__(self, line: MaskableRow) -> MaskingUnits:
        """Cut from the left."""
        words = find_words(line.tokens, line.free, line.borders, self.marks)
        sizes, first, number = self.sizes(words).tolist(), [], 0
        while number < len(sizes):
            first.append(number)
            number += sizes[number]
        starts = np.array(first, dtype=np.int64)
        last = np.append(starts[1:], number) - 1 if first else starts
        return MaskingUnits(words.begin[starts], words.end[last], words.joined[starts])

    def sizes(self, words: Words) -> Ints:
        """Return how many words the longest known n-gram has that begins with each word. Shapes: -> [W]."""
        sizes = np.ones(len(words.hashes), dtype=np.int64)
        for length, known in enumerate(self.known, start=2):
            hashes, whole = hash_word_runs(words, length)
            sizes[:len(hashes)][whole & mark_members(hashes, known)] = length
        return sizes


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Runs of units, of drawn lengths, at drawn places, until the budget is spent.

    A length is drawn first, and then a place where such a run fits (over no border, into no other run), so that long
    runs are not rarer than they should be. One that would spend too much is cut. Where no place is left for a length,
    shorter runs spend the rest.
    """

    cutter: UnitCutter
    lengths: NDArray[np.float64]
    """The probability of 1, 2, ... units."""
    gap: int = 0
    """Units that must stay between two runs."""
    together: bool = False
    """Whether the tokens of a run share one fate."""

    def __call__(self, line: MaskableRow, budget: int, random: np.random.Generator) -> SelectedTokens:
        """Choose."""
        units = self.cutter(line)
        count = len(units.begin)
        places, lengths = random.permutation(count), 1 + random.choice(len(self.lengths), count, p=self.lengths)
        drawn = RunPlacement(units, budget, self.gap)
        drawn.fill(places.tolist(), lengths.tolist(), exact=True)
        drawn.fill(places.tolist(), lengths.tolist(), exact=False)
        if not drawn.runs and count:
            smallest = int((units.end - units.begin).argmin())
            drawn.runs.append((smallest, smallest + 1))
        found = select_runs(units, drawn.runs)
        return found if self.together else replace(found, fates=np.arange(len(found.places)))


class RunPlacement:
    """The runs that were drawn for one row, as (first unit, unit after the last)."""

    def __init__(self, units: MaskingUnits, budget: int, gap: int) -> None:
        """Begin with none."""
        self.left, self.gap = budget, gap
        self.runs: list[tuple[int, int]] = []
        self.begin, self.end = units.begin.tolist(), units.end.tolist()
        self.taken = bytearray(len(self.begin))
        heads = np.append((~units.joined).nonzero()[0], len(self.begin))
        self.limit = heads[np.searchsorted(heads, np.arange(len(self.begin)), side="right")].tolist()

    def fill(self, places: list[int], lengths: list[int], *, exact: bool) -> None:
        """Spend the budget; a length waits until a place fits it (all of it, or where not `exact` some of it)."""
        number = 0
        for place in places:
            if self.left <= 0:
                return
            number += self.take(place, lengths[number], exact=exact)

    def take(self, place: int, length: int, *, exact: bool) -> bool:
        """Take a run of units if there is room for it, and say whether some was taken."""
        stop = self.room(place, place + length)
        if exact and stop < place + length:
            return False
        while stop > place and self.end[stop - 1] - self.begin[place] > self.left:
            stop -= 1
        if stop == place:
            return False
        self.runs.append((place, stop))
        self.taken[place:stop] = b"\1" * (stop - place)
        self.left -= self.end[stop - 1] - self.begin[place]
        return True

    def room(self, place: int, stop: int) -> int:
        """Return how far a run may go from a place before it meets a border or another run."""
        stop = min(stop, self.limit[place])
        while stop > place and 1 in self.taken[max(0, place - self.gap):stop + self.gap]:  # a run, or too near to one
            stop -= 1
        return stop


def select_runs(units: MaskingUnits, runs: list[tuple[int, int]]) -> SelectedTokens:
    """Return the tokens of runs, one fate for each run."""
    first, stop = np.array(runs, dtype=np.int64).reshape(-1, 2).T
    begin, end = units.begin[first], units.end[stop - 1]
    size = end - begin
    number = np.repeat(np.arange(len(size)), size)
    within = np.arange(len(number)) - np.repeat(size.cumsum() - size, size)
    return SelectedTokens(begin[number] + within, number, begin[number] - 1, end[number])


@dataclass(frozen=True, slots=True)
class InnerUnits:
    """Leaves out the first and the last token of every document and row, so that each run has a token on both sides."""

    cutter: UnitCutter

    def __call__(self, line: MaskableRow) -> MaskingUnits:
        """Cut what is left."""
        free = line.free & ~line.borders
        free[:-1] &= ~line.borders[1:]
        free[-1:] = False
        return self.cutter(MaskableRow(line.tokens, free, line.borders))


def compute_geometric_lengths(stop: float, longest: int) -> NDArray[np.float64]:
    """Return the probabilities of lengths up to `longest`; those of longer ones are spread over all. Shapes: [longest].

    Source: Joshi et al. 2020, §3.1, where p = 0.2 and ten words give a mean of 3.8.
    """
    weights = stop * (1.0 - stop) ** np.arange(longest)
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def compute_harmonic_lengths(longest: int) -> NDArray[np.float64]:
    """Return p(n) = (1/n) / (1/1 + ... + 1/longest). Source: Lan et al. 2020, §4.1. Shapes: [longest]."""
    weights = 1.0 / np.arange(1, longest + 1)
    found: NDArray[np.float64] = weights / weights.sum()
    return found


def build_token_selection(choice: c.Choice, given: ObjectiveInputs) -> TokenSelection:
    """Return what chooses tokens. Raises `InputError` where words are masked and the tokenizer marks none."""
    if isinstance(choice, c.RandomTokenMasking):
        return SingleTokens()
    if not given.ids.word_marks:
        raise InputError(f"the tokenizer's tokens do not tell where words begin, which {choice.kind} needs",
                         where="tokenizer.kind", remedy="use wordpiece, byte_bpe, bpe or unigram, or kind: tokens")
    marks, one = parse_marks(given.ids.word_marks), np.ones(1)
    words = WholeWords(marks)
    match choice:
        case c.WholeWordMasking():
            return RunSelection(words, one)
        case c.NGramMasking(longest=longest):
            return RunSelection(words, compute_harmonic_lengths(longest))
        case c.SpanMasking(stop=stop, longest=longest):
            return RunSelection(InnerUnits(words), compute_geometric_lengths(stop, longest), gap=1, together=True)
        case c.PMIMasking():
            known = () if given.collocations is None else given.collocations.hashes(marks)
            return RunSelection(Phrases(marks, known), one)
