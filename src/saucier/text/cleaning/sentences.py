"""Sentences of a text as keys, and a text without some of them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from saucier.text.cleaning.page import Page
from saucier.text.cleaning.words import Hashes, digest, runs


def normal(text: str) -> str:
    """Return a text as it is compared: letter case and white space do not count."""
    return " ".join(text.lower().split())


def exact_key(page: Page) -> tuple[Hashes, Hashes]:
    """Return the key of a whole text. Shapes: two of [1]."""
    lanes = np.frombuffer(digest(" ".join(page.lower.split())), np.uint64)
    return lanes[:1], lanes[1:]


def span_keys(page: Page, sentences: int) -> tuple[Hashes, Hashes]:
    """Return a key for every run of so many sentences, by the number of its first one. Shapes: two of [runs]."""
    ends = page.sentence_ends
    texts = (normal(page.text[start:end]) for start, end in zip([0, *ends], ends, strict=False))
    lanes = np.frombuffer(b"".join(map(digest, texts)), np.uint64).reshape(-1, 2)
    return runs(np.ascontiguousarray(lanes[:, 0]), sentences), runs(np.ascontiguousarray(lanes[:, 1]), sentences)


def without_sentences(page: Page, removed: Collection[int]) -> str:
    """Return a text without the sentences of these numbers; an empty line is not left doubled."""
    ends = page.sentence_ends
    pieces = [page.text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    kept = [_line_ends(piece) if number in removed else piece for number, piece in enumerate(pieces)]
    return tidy([line.strip() for line in "".join(kept).split("\n")])


def _line_ends(piece: str) -> str:
    """Return the line ends before a sentence, which stay when it goes."""
    return "\n" * piece[:len(piece) - len(piece.lstrip())].count("\n")


def tidy(lines: list[str]) -> str:
    """Join lines, with one empty line where there were several, and none at the ends."""
    kept = [line for line, following in zip(lines, [*lines[1:], ""], strict=True) if line or following]
    return "\n".join(kept).strip("\n")
