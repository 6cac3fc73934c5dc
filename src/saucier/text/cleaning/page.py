"""`Page`: one document while rules look at it. What several rules ask for is computed once."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.words import WORDS, Hashes, hashes

FULL_STOPS = re.compile(r"[.!?…。！？]+[\"'”’)\]」』]*(?:(?<=[。！？」』])|(?=\s)|$)")
"""What ends a sentence: a mark before white space, or an ideographic one anywhere."""


class Page:
    """The text of a document as it stands, and views of it. Setting `text` drops the views."""

    def __init__(self, text: str) -> None:
        """Start with a raw text."""
        self._text = text

    @property
    def text(self) -> str:
        """The text."""
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        """Set the text, and drop the views of the one before."""
        self.__dict__ = {"_text": text}

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self._text.lower()

    @cached_property
    def lines(self) -> list[str]:
        """Lines that hold text, without white space around them."""
        return [stripped for line in self._text.split("\n") if (stripped := line.strip())]

    @cached_property
    def words(self) -> list[str]:
        """What stands between white space."""
        return self._text.split()

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of each of the words. Shapes: [words]."""
        return np.fromiter(map(len, self.words), np.int64, len(self.words))

    @cached_property
    def word_hashes(self) -> Hashes:
        """A number for each of the words, equal for equal ones. Shapes: [words]."""
        return hashes(self.words)

    @cached_property
    def tokens(self) -> list[str]:
        """Runs of letters and digits, in lower case."""
        return WORDS.findall(self.lower)

    @cached_property
    def token_hashes(self) -> Hashes:
        """A number for each of the tokens. Shapes: [tokens]."""
        return hashes(self.tokens)

    @cached_property
    def sentence_ends(self) -> list[int]:
        """Where sentences end: behind a full stop, at the end of a line, at the end of the text."""
        return sentence_ends(self._text)


def sentence_ends(text: str) -> list[int]:
    """Return the places in a text behind its sentences, in order. Abbreviations count as ends."""
    ends = {match.end() for match in FULL_STOPS.finditer(text)}
    place = text.find("\n")
    while place >= 0:
        ends.add(place)
        place = text.find("\n", place + 1)
    ends.add(len(text))
    return _with_text(text, sorted(ends))


def _with_text(text: str, ends: list[int]) -> list[int]:
    """Leave out ends with nothing but white space since the one before."""
    kept, start = [], 0
    for end in ends:
        if end > start and not text[start:end].isspace():
            kept.append(end)
            start = end
    return kept
