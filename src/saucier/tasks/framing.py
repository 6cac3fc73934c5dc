"""Rows put together from tokens that are known already: the special tokens around texts, and windows over a long text.

Axes: N tokens of a text, W windows over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saucier.errors import InputError
from saucier.text.rows import Ints
from saucier.text.tokenizer import Tokenizer

LENGTH_COUNTS = 0.01
"""What a token of a window's length adds to the context of a place. Source: Devlin et al. 2019, code release."""


@dataclass(frozen=True, slots=True)
class Framed:
    """One row."""

    ids: list[int]
    types: list[int]


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens that a tokenizer puts before, between and behind the texts of a row."""

    borders: tuple[tuple[int, ...], ...]
    """One more than there are texts."""
    border_types: tuple[tuple[int, ...], ...]
    """The segments of these tokens."""
    text_types: tuple[int, ...]
    """The segment of each text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, sample: str, texts: int) -> Frame:
        """Read the frame off a row of `texts` texts of one token each, the first of `sample`.

        Raises `InputError` where the sample has no tokens.
        """
        parts = [tokenizer.encodings([sample], False)[0] for _ in range(texts)]
        if not parts[0].ids:
            raise InputError(f"the tokenizer makes no token of {sample[:40]!r}", where="data",
                             remedy="give texts in a language that it knows")
        for part in parts:
            part.truncate(1)
        done = tokenizer.backend.post_process(parts[0], parts[1] if texts > 1 else None, True)
        borders: list[list[int]] = [[]]
        types: list[list[int]] = [[]]
        own: list[int] = []
        for number, kind, text in zip(tokenizer.published_ids(done.ids), done.type_ids, done.sequence_ids, strict=True):
            if text is None:
                borders[-1].append(number)
                types[-1].append(kind)
            else:
                own.append(kind)
                borders.append([])
                types.append([])
        return cls(tuple(map(tuple, borders)), tuple(map(tuple, types)), tuple(own))

    @property
    def size(self) -> int:
        """How many tokens it takes of a row."""
        return sum(map(len, self.borders))

    def room(self, length: int, taken: int = 0, *, what: str, where: str, remedy: str) -> int:
        """Return how many tokens a row has for a text beside `taken` others. Raises `InputError` where it has none."""
        room = length - self.size - taken
        if room < 1:
            raise InputError(f"rows of {length} tokens have no room {what}", where=where, remedy=remedy)
        return room

    def row(self, *texts: Sequence[int]) -> Framed:
        """Put texts into it."""
        ids, types = list(self.borders[0]), list(self.border_types[0])
        for place, text in enumerate(texts):
            ids += [*text, *self.borders[place + 1]]
            types += [*[self.text_types[place]] * len(text), *self.border_types[place + 1]]
        return Framed(ids, types)

    def start(self, *before: int) -> int:
        """Return where a text begins, behind others of these lengths."""
        return sum(before) + sum(map(len, self.borders[:len(before) + 1]))


def windows(length: int, room: int, step: int) -> list[tuple[int, int]]:
    """Return where windows of at most `room` tokens begin and end; each begins `step` tokens behind the one before.

    Source: Devlin et al. 2019, code release (document stride).
    """
    starts = [0]
    while starts[-1] + room < length:
        starts.append(starts[-1] + step)
    return [(start, min(start + room, length)) for start in starts]


def owners(spans: Sequence[tuple[int, int]]) -> Ints:
    """Return for each token the window in which it has most context on its poorer side; of equal ones the first.

    Source: Devlin et al. 2019, code release (maximal context). Shapes: -> [N].
    """
    places = np.arange(spans[-1][1])
    starts, stops = np.array(spans, dtype=np.int64).T[:, :, None]
    context = np.minimum(places - starts, stops - 1 - places) + LENGTH_COUNTS * (stops - starts)
    found: Ints = np.where((places >= starts) & (places < stops), context, -1.0).argmax(axis=0)
    return found
