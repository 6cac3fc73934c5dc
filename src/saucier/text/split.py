"""Deciding what is held out: single documents drawn by number, or everything behind a cut.

Decisions look at numbers and lengths only, so that a text of any size can stream by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from saucier.errors import InputError
from saucier.text.config import Fraction, HeldOutFiles, Tail
from saucier.text.read import Document
from saucier.text.rows import generator

FEWEST = 20
"""With fewer documents than this (and than 1 / fraction), a fraction is taken from the end of the text."""
Part = Literal["train", "held_out"]
Drawn = Callable[[int], bool]
"""Tells whether document (or pair) number n is held out."""
Measure = Callable[[int | None], tuple[int, int]]
"""Counts documents, stopping behind so many, and their characters (pairs count as one character each)."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The place (in characters, or pairs) behind which everything is held out."""

    at: int

    def documents(self, documents: Iterator[Document], part: Part) -> Iterator[Document]:
        """Give the documents before or behind the cut; one that it goes through is parted at a line end."""
        end = 0
        renumber = 0
        for document in documents:
            start, end = end, end + len(document.text)
            renumber = 0 if document.part == 0 else renumber
            if end <= self.at:
                if part == "train":
                    yield document
                continue
            place = _line_end(document.text, self.at - start) if start < self.at else 0
            if part == "train":
                if place:
                    yield replace(document, text=document.text[:place])
                return
            if place < len(document.text):
                yield replace(document, text=document.text[place:], part=renumber)
                renumber += 1


def _line_end(text: str, place: int) -> int:
    """Find the line end (or else the blank) at or before `place`; without one, `place` itself."""
    return max(text.rfind("\n", 0, place), -1) + 1 or text.rfind(" ", 0, place) + 1 or place


def choose(held_out: Fraction | Tail | HeldOutFiles, measure: Measure,
           seed: int) -> tuple[Cut | Drawn, str]:
    """Decide once how the data is cut, and say so in words. Errors: `InputError` where there is too little to cut."""
    if isinstance(held_out, HeldOutFiles):
        return _never, f"files of their own: {', '.join(held_out.files)}"
    enough = max(FEWEST, round(1 / held_out.fraction))
    documents, total = measure(enough if isinstance(held_out, Fraction) else None)
    if isinstance(held_out, Fraction) and documents >= enough:
        drawn = _strata(held_out.fraction, seed if held_out.seed is None else held_out.seed)
        return drawn, f"{held_out.fraction:.1%} of the documents, drawn evenly"
    cut = total - round(total * held_out.fraction)
    if not 0 < cut < total:
        raise InputError(f"is too little to hold out {held_out.fraction:.1%}", where="data",
                         remedy="give more text, or data.held_out.kind=files")
    why = f" (fewer than {enough} documents)" if isinstance(held_out, Fraction) else ""
    return Cut(cut), f"the last {held_out.fraction:.1%}{why}"


def _never(number: int) -> bool:
    return False


def _strata(fraction: float, seed: int) -> Drawn:
    """Draw one document from each run of 1/fraction, so that any number of documents can stream by.

    Stratum s spans the documents from s / fraction to (s + 1) / fraction; it holds out the one at a random place in
    that span.
    """
    @functools.lru_cache(maxsize=8)
    def place(stratum: int) -> int:
        return int((stratum + generator(seed, stratum).random()) / fraction)

    def held(number: int) -> bool:
        strata = range(int(number * fraction), int((number + 1) * fraction) + 1)
        return any(place(stratum) == number for stratum in strata)

    return held


def drawn_documents(documents: Iterator[Document], held: Drawn, part: Part) -> Iterator[Document]:
    """Give the documents that belong to a part, all parts of a document together."""
    number, wanted = -1, False
    for document in documents:
        if document.part == 0:
            number += 1
            wanted = held(number) == (part == "held_out")
        if wanted:
            yield document
