"""Texts of any length whose answer stands in one place: what `long_tasks` learns.

Every row is a function of the seed. The books of `../shared/data/long` are the filler; nothing of them is kept here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

COLOURS = ("red", "green", "blue", "white", "black", "brown", "yellow", "pink")
"""What a thing may be."""
OTHERS = ("door", "dress", "horse", "house", "coat", "chair", "boat", "book", "lamp", "stone", "river", "table")
"""Things whose colour is told too, and is not asked for."""
SENTENCE = 5
"""Words of a slot of a row: a sentence of four, and one of the book, so that sentences do not touch."""
OTHER_SENTENCES = 16
"""Sentences about other things in a row, on the mean; a short row has fewer."""


def sentence(thing: str, colour: str) -> list[str]:
    """Return the words of a sentence."""
    return ["The", thing, "is", f"{colour}."]


def hidden_key(book: list[str], words: int, draw: random.Random) -> tuple[str, str]:
    """Return a colour, and a stretch of a book in which one sentence tells it of the key.

    Sentences of the same form, about other things in colours of their own, stand among it; all places are drawn alike.
    """
    begin, colour = draw.randrange(len(book) - words), draw.choice(COLOURS)
    row = book[begin:begin + words]
    share = min(1 / (3 * SENTENCE), OTHER_SENTENCES / words)
    others = max(1, sum(draw.random() < share for _ in range(words)))
    places = draw.sample(range(words // SENTENCE), min(others + 1, words // SENTENCE))
    told = [("key", colour), *((draw.choice(OTHERS), draw.choice(COLOURS)) for _ in places[1:])]
    for place, one in zip(places, told, strict=True):
        row[SENTENCE * place:SENTENCE * place + 4] = sentence(*one)
    return colour, " ".join(row)


def hidden_keys(books: Iterable[Path], rows: int, words: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield colours and texts of so many words each."""
    book = [word for path in books for word in path.read_text(encoding="utf-8").split()]
    draw = random.Random(seed)
    for _ in range(rows):
        yield hidden_key(book, words, draw)


def write_rows(path: Path, names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Path:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join("\t".join(cells) for cells in (names, *rows)) + "\n", encoding="utf-8")
    return path
