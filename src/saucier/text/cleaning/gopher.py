"""Gopher's rules: counts of natural language, and repetition inside a document. Source: Rae et al. 2021, A1.1, table
A1.

Axes: W words, N runs of words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saucier.text.cleaning.config import (
    AlphabeticWords,
    Bullets,
    Ellipses,
    RepeatedLines,
    RepeatedNgrams,
    RepeatedParagraphs,
    StopWords,
    Symbols,
    WordCount,
    WordLength,
)
from saucier.text.cleaning.page import ENDLESS, Fault, Hashes, Page, PageJudge, check_range, hash_runs

ELLIPSES = ("...", "…")


def build_word_count_judge(rule: WordCount) -> PageJudge:
    """Count words."""
    return lambda page: check_range("words", len(page.words), rule.least, rule.most)


def build_word_length_judge(rule: WordLength) -> PageJudge:
    """Average the characters of words."""
    def judge(page: Page) -> Fault | None:
        mean = int(page.lengths.sum()) / max(1, len(page.words))
        return check_range("characters a word", mean, rule.least, rule.most)

    return judge


def build_symbol_judge(rule: Symbols) -> PageJudge:
    """Count hash signs and ellipses for each word."""
    def judge(page: Page) -> Fault | None:
        words = max(1, len(page.words))
        signs = page.text.count("#")
        dots = sum(page.text.count(mark) for mark in ELLIPSES)
        return (check_range("hash signs a word", signs / words, 0.0, rule.ratio)
                or check_range("ellipses a word", dots / words, 0.0, rule.ratio))

    return judge


def build_bullet_judge(rule: Bullets) -> PageJudge:
    """Count lines that start with a bullet."""
    def judge(page: Page) -> Fault | None:
        found = sum(line.startswith(rule.marks) for line in page.lines)
        return check_range("of the lines start with a bullet", found / max(1, len(page.lines)), 0.0, rule.share)

    return judge


def build_ellipsis_judge(rule: Ellipses) -> PageJudge:
    """Count lines that end with an ellipsis."""
    def judge(page: Page) -> Fault | None:
        found = sum(line.endswith(ELLIPSES) for line in page.lines)
        return check_range("of the lines end with an ellipsis", found / max(1, len(page.lines)), 0.0, rule.share)

    return judge


def build_alphabetic_judge(rule: AlphabeticWords) -> PageJudge:
    """Count words that hold a letter; that enough words are nothing but letters is quick to see."""
    def judge(page: Page) -> Fault | None:
        words = max(1, len(page.words))
        if sum(map(str.isalpha, page.words)) >= rule.share * words:
            return None
        lettered = sum(word.isalpha() or any(map(str.isalpha, word)) for word in page.words)
        return check_range("of the words hold a letter", lettered / words, rule.share, ENDLESS)

    return judge


def build_stop_word_judge(rule: StopWords) -> PageJudge:
    """Count which of the commonest words there are; mostly they stand there in lower case, without punctuation."""
    wanted = set(rule.words)

    def judge(page: Page) -> Fault | None:
        if len(wanted.intersection(page.words)) >= rule.least:
            return None
        found = len(wanted.intersection(page.tokens))
        return check_range(f"of the words {', '.join(rule.words)}", found, rule.least, ENDLESS)

    return judge


def build_repeated_line_judge(rule: RepeatedLines) -> PageJudge:
    """Ask how much stands in lines that stood there before."""
    return lambda page: _build_repetition_judge(page.lines, "lines", rule)


def build_paragraph_judge(rule: RepeatedParagraphs) -> PageJudge:
    """Ask how much stands in paragraphs (an empty line between) that stood there before."""
    def judge(page: Page) -> Fault | None:
        if "\n\n" not in page.text:
            return None
        return _build_repetition_judge([part for part in map(str.strip, page.text.split("\n\n")) if part],
                                       "paragraphs", rule)

    return judge


def _build_repetition_judge(parts: Sequence[str], name: str, rule: RepeatedLines | RepeatedParagraphs) -> Fault | None:
    different = set(parts)
    if len(different) == len(parts):
        return None
    characters = sum(map(len, parts))
    again = characters - sum(map(len, different))
    return (check_range(f"of the {name} stood there before", 1 - len(different) / len(parts), 0.0, rule.share)
            or check_range(f"of the characters are in {name} that stood there before", again / characters, 0.0,
                           rule.characters))


def build_ngram_judge(rule: RepeatedNgrams) -> PageJudge:
    """Ask how much stands in the commonest n-gram of words, and in n-grams that stood there before.

    A word in a repeated n-gram is in a repeated shorter one as well, so that longer ones need no counting where the
    share of the shortest is below all limits.
    """
    lengths = sorted(rule.repeated)
    lowest = min(rule.repeated.values(), default=1.0)

    def judge(page: Page) -> Fault | None:
        total = max(1, int(page.lengths.sum()))
        for length, limit in sorted(rule.commonest.items()):
            share = count_commonest(page.word_hashes, page.lengths, length) / total
            if fault := check_range(f"of the characters are in the commonest {length} words", share, 0.0, limit):
                return fault
        for length in lengths:
            share = count_repeated(page.word_hashes, page.lengths, length) / total
            if fault := check_range(f"of the characters are in repeated runs of {length} words", share, 0.0,
                                    rule.repeated[length]):
                return fault
            if share <= lowest:
                break
        return None

    return judge


def count_commonest(words: Hashes, characters: NDArray[np.int64], length: int) -> int:
    """Count the characters in all occurrences of the commonest run, 0 where none occurs twice.

    Of equally common ones the earliest counts. Shapes: words, characters [W].
    """
    found = hash_runs(words, length)
    if len(found) < 2:
        return 0
    ordered = np.sort(found)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(starts, len(ordered)))
    most = int(counts.max())
    if most < 2:
        return 0
    first = int(np.argmax(_mark_among(found, ordered[starts[counts == most]])))
    return most * int(characters[first:first + length].sum())


def _mark_among(values: Hashes, few: Hashes) -> NDArray[np.bool_]:
    """Tell which values are among a few; most often that is one, which is quicker to see."""
    return values == few[0] if len(few) == 1 else np.isin(values, few)


def count_repeated(words: Hashes, characters: NDArray[np.int64], length: int) -> int:
    """Count the characters in runs that stood there before, each once. Shapes: words, characters [W]."""
    found = hash_runs(words, length)
    order = np.argsort(found, kind="stable")
    again = order[1:][found[order[1:]] == found[order[:-1]]]
    if not len(again):
        return 0
    edges = np.zeros(len(words) + 1, np.int64)
    np.add.at(edges, again, 1)
    np.add.at(edges, again + length, -1)
    return int(characters[np.cumsum(edges[:-1]) > 0].sum())
