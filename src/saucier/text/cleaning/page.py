"""`Page`: one document while rules look at it; its words and sentences as 64-bit keys, and why it is dropped.

What several rules need is computed once. Axes: W words, N runs of words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows.batch import GOLDEN, Hashes, mix_bits

WORDS = re.compile(r"\w+")
REMEMBERED = 1_000_000
"""Words whose numbers are kept; when there are more, remembering starts again."""


class _Numbers(dict[str, int]):
    def __missing__(self, word: str) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        number = self[word] = int.from_bytes(hash_text(word)[:8], "little")
        return number


_NUMBERS = _Numbers()


def hash_text(text: str) -> bytes:
    """Return the hash of a text, 16 bytes."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def hash_words(words: Sequence[str]) -> Hashes:
    """Return a number for each word. Shapes: [W]."""
    return np.fromiter(map(_NUMBERS.__getitem__, words), np.uint64, len(words))


def hash_runs(words: Hashes, length: int) -> Hashes:
    """Return a number for each run of `length` words, none where there are fewer. Shapes: [W] -> [N]."""
    count = len(words) - length + 1
    if count <= 0:
        return words[:0]
    total = words[:count].copy()
    for place in range(1, length):
        total *= np.uint64(GOLDEN)
        total += words[place:place + count]
    return mix_bits(total)


FULL_STOPS = re.compile(r"[.!?…。！？]+[\"'”’)\]」』]*(?:(?<=[。！？」』])|(?=\s)|$)")
"""What ends a sentence: a mark before white space, or an ideographic one anywhere."""
LINE_END = re.compile("\n")


class Page:
    """The text of a document as it is, and views of it."""

    def __init__(self, text: str) -> None:
        """Start with a raw text."""
        self.text = text

    def set_text(self, text: str) -> None:
        """Set the text, and drop the views of the one before."""
        self.__dict__ = {"text": text}

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def lines(self) -> list[str]:
        """Lines that hold text, without white space around them."""
        return [stripped for line in self.text.split("\n") if (stripped := line.strip())]

    @cached_property
    def words(self) -> list[str]:
        """What is between white space."""
        return self.text.split()

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Characters of each of the words. Shapes: [words]."""
        return np.fromiter(map(len, self.words), np.int64, len(self.words))

    @cached_property
    def word_hashes(self) -> Hashes:
        """A number for each of the words, equal for equal ones. Shapes: [words]."""
        return hash_words(self.words)

    @cached_property
    def tokens(self) -> list[str]:
        """Runs of letters and digits, in lower case."""
        return WORDS.findall(self.lower)

    @cached_property
    def token_hashes(self) -> Hashes:
        """A number for each of the tokens. Shapes: [tokens]."""
        return hash_words(self.tokens)

    @cached_property
    def sentence_ends(self) -> list[int]:
        """Where sentences end: after a full stop, at the end of a line, at the end of the text."""
        return find_sentence_ends(self.text)


def find_sentence_ends(text: str) -> list[int]:
    """Return the places in a text after its sentences, in order. Abbreviations count as ends."""
    ends = {match.end() for match in FULL_STOPS.finditer(text)} | {match.start() for match in LINE_END.finditer(text)}
    kept, start = [], 0
    for end in sorted(ends | {len(text)}):  # ends with nothing but white space since the one before are none
        if end > start and not text[start:end].isspace():
            kept.append(end)
            start = end
    return kept


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a rule drops a document."""

    reason: str
    """In words, with the measured value."""
    line: int | None = None
    """The line inside the document where it shows, from 1; None where it is about the whole."""


PageJudge = Callable[[Page], Fault | None]
"""Tells what is wrong with a page, or None."""


def check_range(what: str, value: float, least: float, most: float) -> Fault | None:
    """Return the fault of a value that is too small or too large; whole numbers are shown as such."""
    if value < least:
        return Fault(f"{format_number(value)} {what}, under {format_number(least)}")
    if value > most:
        return Fault(f"{format_number(value)} {what}, over {format_number(most)}")
    return None


def format_number(value: float) -> str:
    """Format a number for a reader: whole, or with three decimals."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


ENDLESS = float("inf")


def compute_exact_key(page: Page) -> tuple[Hashes, Hashes]:
    """Return the key of a whole text. Shapes: two of [1]."""
    lanes = np.frombuffer(hash_text(" ".join(page.lower.split())), np.uint64)
    return lanes[:1], lanes[1:]


def compute_span_keys(page: Page, sentences: int) -> tuple[Hashes, Hashes]:
    """Return a key for every run of `sentences` sentences, by the number of its first one. Shapes: two of [runs]."""
    ends = page.sentence_ends
    texts = (" ".join(page.text[start:end].lower().split()) for start, end in zip([0, *ends], ends, strict=False))
    lanes = np.frombuffer(b"".join(map(hash_text, texts)), np.uint64).reshape(-1, 2)
    return hash_runs(np.ascontiguousarray(lanes[:, 0]), sentences), hash_runs(np.ascontiguousarray(lanes[:, 1]),
                                                                              sentences)


def remove_sentences(page: Page, removed: Collection[int]) -> str:
    """Return a text without the sentences of these numbers; an empty line is not left doubled."""
    ends = page.sentence_ends
    pieces = [page.text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    # the line ends before a sentence stay when it goes
    kept = ["\n" * piece[:len(piece) - len(piece.lstrip())].count("\n") if number in removed else piece
            for number, piece in enumerate(pieces)]
    return join_lines([line.strip() for line in "".join(kept).split("\n")])


def join_lines(lines: list[str]) -> str:
    """Join lines, with one empty line where there were several, and none at the ends."""
    kept = [line for line, following in zip(lines, [*lines[1:], ""], strict=True) if line or following]
    return "\n".join(kept).strip("\n")
