"""Runs of words that training text shares with evaluation text. Axes: N runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from saucier.errors import InputError
from saucier.text.cleaning.config import Contamination
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.verdict import Fault, PageJudge
from saucier.text.cleaning.words import WORDS, Hashes, hashes, runs
from saucier.text.sources import Source, find_sources, lines
from saucier.text.tables import rows


@dataclass(slots=True)
class Forbidden:
    """The runs of words of evaluation text. Shapes: each array of `runs` [N], sorted."""

    runs: dict[int, Hashes] = field(default_factory=dict)
    """By length; shorter ones come from texts that are shorter than a run."""
    texts: int = 0
    """Lines and cells that are looked for."""
    short: int = 0
    """Those with too few words for it."""


def contamination_judge(rule: Contamination) -> PageJudge:
    """Drop what shares a run with evaluation text. Raises `InputError` where that text has no run."""
    forbidden = forbidden_runs(rule)

    def judge(page: Page) -> Fault | None:
        for length, known in forbidden.runs.items():
            found = np.flatnonzero(_in_sorted(runs(page.token_hashes, length), known))
            if len(found):
                words = " ".join(page.tokens[found[0]:found[0] + length])
                return Fault(f"shares {length} words with the evaluation text: {words!r}")
        return None

    return judge


def _in_sorted(values: Hashes, known: Hashes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = known[places] == values
    return found


def forbidden_runs(rule: Contamination) -> Forbidden:
    """Read evaluation text, once for all pieces. Raises `InputError` where no text has the words to be looked for."""
    stats = [source.path.stat() for source in find_sources(rule.files)]
    return _read(rule, tuple((stat.st_size, stat.st_mtime_ns) for stat in stats))


@lru_cache(maxsize=1)
def _read(rule: Contamination, stamps: tuple[tuple[int, int], ...]) -> Forbidden:
    found, forbidden = defaultdict[int, list[Hashes]](list), Forbidden()
    for source in find_sources(rule.files):
        for text in _texts(source):
            words = WORDS.findall(text.lower())
            length = min(rule.words, len(words))
            if length >= min(rule.shortest, rule.words):
                found[length].append(runs(hashes(words), length))
                forbidden.texts += 1
            else:
                forbidden.short += bool(words)
    if not found:
        raise InputError(f"no line or cell has the {rule.shortest} words that a text must have to be looked for",
                         where=", ".join(rule.files), remedy="lower contamination.shortest, or leave --against out")
    forbidden.runs = {length: np.unique(np.concatenate(found[length])) for length in sorted(found, reverse=True)}
    return forbidden


def _texts(source: Source) -> Iterator[str]:
    if source.format == "txt":
        yield from (line for _, line in lines(source))
        return
    for row in rows(source, None):
        yield from (cell for cell in row.cells.values() if isinstance(cell, str))
