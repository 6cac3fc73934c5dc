"""Gopher's rules of repetition inside one document. Source: Rae et al. 2021, table A1.

Axes: W words, N runs of words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.config import RepeatedLines, RepeatedNgrams, RepeatedParagraphs
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.verdict import Fault, PageJudge, outside
from saucier.text.cleaning.words import Hashes, runs


def line_judge(rule: RepeatedLines) -> PageJudge:
    """Ask how much stands in lines that stood there before."""
    return lambda page: _repeated(page.lines, "lines", rule)


def paragraph_judge(rule: RepeatedParagraphs) -> PageJudge:
    """Ask how much stands in paragraphs (an empty line between) that stood there before."""
    def judge(page: Page) -> Fault | None:
        if "\n\n" not in page.text:
            return None
        return _repeated([part for part in map(str.strip, page.text.split("\n\n")) if part], "paragraphs", rule)

    return judge


def _repeated(parts: Sequence[str], name: str, rule: RepeatedLines | RepeatedParagraphs) -> Fault | None:
    different = set(parts)
    if len(different) == len(parts):
        return None
    characters = sum(map(len, parts))
    again = characters - sum(map(len, different))
    return (outside(f"of the {name} stood there before", 1 - len(different) / len(parts), 0.0, rule.share)
            or outside(f"of the characters are in {name} that stood there before", again / characters, 0.0,
                       rule.characters))


def ngram_judge(rule: RepeatedNgrams) -> PageJudge:
    """Ask how much stands in the commonest n-gram of words, and in n-grams that stood there before.

    A word in a repeated n-gram is in a repeated shorter one as well, so that longer ones need no counting where the
    share of the shortest is below all limits.
    """
    lengths = sorted(rule.repeated)
    lowest = min(rule.repeated.values(), default=1.0)

    def judge(page: Page) -> Fault | None:
        total = max(1, int(page.lengths.sum()))
        for length, limit in sorted(rule.commonest.items()):
            share = commonest(page.word_hashes, page.lengths, length) / total
            if fault := outside(f"of the characters are in the commonest {length} words", share, 0.0, limit):
                return fault
        for length in lengths:
            share = repeated(page.word_hashes, page.lengths, length) / total
            if fault := outside(f"of the characters are in repeated runs of {length} words", share, 0.0,
                                rule.repeated[length]):
                return fault
            if share <= lowest:
                break
        return None

    return judge


def commonest(words: Hashes, characters: NDArray[np.int64], length: int) -> int:
    """Count the characters in all occurrences of the commonest run, 0 where none occurs twice.

    Of equally common ones the earliest counts. Shapes: words, characters [W].
    """
    found = runs(words, length)
    if len(found) < 2:
        return 0
    ordered = np.sort(found)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(starts, len(ordered)))
    most = int(counts.max())
    if most < 2:
        return 0
    first = int(np.argmax(_among(found, ordered[starts[counts == most]])))
    return most * int(characters[first:first + length].sum())


def _among(values: Hashes, few: Hashes) -> NDArray[np.bool_]:
    """Tell which values are among a few; most often that is one, which is quicker to see."""
    return values == few[0] if len(few) == 1 else np.isin(values, few)


def repeated(words: Hashes, characters: NDArray[np.int64], length: int) -> int:
    """Count the characters in runs that stood there before, each once. Shapes: words, characters [W]."""
    found = runs(words, length)
    order = np.argsort(found, kind="stable")
    again = order[1:][found[order[1:]] == found[order[:-1]]]
    if not len(again):
        return 0
    edges = np.zeros(len(words) + 1, np.int64)
    np.add.at(edges, again, 1)
    np.add.at(edges, again + length, -1)
    return int(characters[np.cumsum(edges[:-1]) > 0].sum())
