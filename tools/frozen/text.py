"""Text made by a rule, the same on every machine: prose with documents and sentences, pairs, several languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

SYLLABLES = ("ba", "co", "di", "fu", "ga", "ho", "ki", "lo", "mu", "ne", "po", "ri", "sa", "ti", "vo", "zu")
LANGUAGES = {"eng": "", "deu": "en", "fra": "é"}
"""What words of a language end with."""


def numbers(seed: int) -> Iterator[int]:
    """Yield pseudo-random numbers below 2**31 (a linear congruence, so that no library can change them)."""
    state = seed * 2 + 1
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def word(number: int, ending: str = "") -> str:
    """Spell a number below 256 as a word of one to three syllables; small ones are short, as common words are."""
    parts = [SYLLABLES[number % 16]]
    if number >= 16:
        parts.append(SYLLABLES[number // 16])
    if number >= 128:
        parts.append(SYLLABLES[number * 7 % 16])
    return "".join(parts) + ending


def sentence(draw: Iterator[int], ending: str = "") -> str:
    """Make a sentence of three to eleven words; each word makes some that follow it likelier than others."""
    count, found, last = 3 + next(draw) % 9, [], next(draw) % 40
    for _ in range(count):
        step = next(draw)
        last = (last * 5 + 3) % 256 if step % 3 == 0 else step % (16, 64, 256)[step // 7 % 3]
        found.append(word(last, ending))
    return " ".join(found).capitalize() + (".", ".", ".", "?", "!")[next(draw) % 5]


def prose(documents: int, *, seed: int, ending: str = "") -> list[str]:
    """Make documents of one to nine sentences."""
    draw = numbers(seed)
    return [" ".join(sentence(draw, ending) for _ in range(1 + next(draw) % 9)) for _ in range(documents)]


def pairs(count: int, *, seed: int, endings: tuple[str, str] = ("", "en")) -> list[tuple[str, str]]:
    """Make pairs of sentences; the second has the words of the first in the other order, ended otherwise."""
    found = []
    for source in (sentence(numbers(seed * 1000 + number)) for number in range(count)):
        words = source[:-1].lower().split()
        found.append((" ".join(one + endings[0] for one in words), " ".join(one + endings[1] for one in words[::-1])))
    return found


def write_table(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Path:
    """Write a table with tabs."""
    path.write_text("\n".join("\t".join(row) for row in (header, *rows)) + "\n", encoding="utf-8")
    return path


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_text(folder: Path) -> Path:
    """Write every file that rows are made of, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, seed, documents in (("text", 1, 320), ("more", 2, 60)):
        (folder / f"{name}.txt").write_text("\n\n".join(prose(documents, seed=seed)), encoding="utf-8")
    for language, ending in LANGUAGES.items():
        (folder / f"{language}.txt").write_text("\n\n".join(prose(120, seed=3, ending=ending)), encoding="utf-8")
    write_table(folder / "pairs.tsv", ("there", "back"), [*pairs(300, seed=4)])
    write_table(folder / "synthetic.tsv", ("there", "back"), [*pairs(60, seed=5)])
    write_table(folder / "eng-deu.tsv", ("eng", "deu"), [*pairs(200, seed=6)])
    write_table(folder / "eng-fra.tsv", ("eng", "fra"), [*pairs(90, seed=7, endings=("", "é"))])
    return folder
