"""Gopher's rules: counts of natural language, and repetition inside a document. Source: Rae et al. 2021, A1.1, table
A1.

Axes: W words, N runs of words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.config.base import Config
from saucier.text.cleaning.config import (
    AlphabeticWords,
    Bullets,
    Ellipses,
    FewSentences,
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


Count = Callable[[Page, Any], float]
"""What a page has of something, by its rule."""
Bound = Callable[[Any], float]
COUNTED: Mapping[type[Config], tuple[tuple[str, Count, Bound, Bound], ...]] = {
    WordCount: (("words", lambda page, _: len(page.words), lambda rule: rule.least, lambda rule: rule.most),),
    WordLength: (("characters a word", lambda page, _: int(page.lengths.sum()) / max(1, len(page.words)),
                  lambda rule: rule.least, lambda rule: rule.most),),
    Symbols: (("hash signs a word", lambda page, _: page.text.count("#") / max(1, len(page.words)),
               lambda _: 0.0, lambda rule: rule.ratio),
              ("ellipses a word", lambda page, _: sum(map(page.text.count, ELLIPSES)) / max(1, len(page.words)),
               lambda _: 0.0, lambda rule: rule.ratio)),
    Bullets: (("of the lines start with a bullet",
               lambda page, rule: sum(line.startswith(rule.marks) for line in page.lines) / max(1, len(page.lines)),
               lambda _: 0.0, lambda rule: rule.share),),
    Ellipses: (("of the lines end with an ellipsis",
                lambda page, _: sum(line.endswith(ELLIPSES) for line in page.lines) / max(1, len(page.lines)),
                lambda _: 0.0, lambda rule: rule.share),),
    FewSentences: (("sentences", lambda page, _: len(page.sentence_ends), lambda rule: rule.sentences,
                    lambda _: ENDLESS),),
}
"""What is counted for a rule, and between which bounds it has to be."""


def build_count_judge(rule: Config) -> PageJudge:
    """Count what the rule is about; the first count out of its bounds is the fault."""
    counted = [(what, count, least(rule), most(rule)) for what, count, least, most in COUNTED[type(rule)]]

    def judge(page: Page) -> Fault | None:
        faults = (check_range(what, count(page, rule), least, most) for what, count, least, most in counted)
        return next((fault for fault in faults if fault), None)

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
    """Count which of the commonest words there are; mostly they are in lower case, without punctuation."""
    wanted = set(rule.words)

    def judge(page: Page) -> Fault | None:
        if len(wanted.intersection(page.words)) >= rule.least:
            return None
        found = len(wanted.intersection(page.tokens))
        return check_range(f"of the words {', '.join(rule.words)}", found, rule.least, ENDLESS)

    return judge


def build_repetition_judge(rule: RepeatedLines | RepeatedParagraphs) -> PageJudge:
    """Ask how much is in lines, or in paragraphs (an empty line between), that came before."""
    name = "lines" if isinstance(rule, RepeatedLines) else "paragraphs"

    def judge(page: Page) -> Fault | None:
        parts = page.lines if name == "lines" else [*filter(None, map(str.strip, page.text.split("\n\n")))]
        different = set(parts)
        if len(different) == len(parts):
            return None
        characters = sum(map(len, parts))
        again = characters - sum(map(len, different))
        return (check_range(f"of the {name} stood there before", 1 - len(different) / len(parts), 0.0, rule.share)
                or check_range(f"of the characters are in {name} that stood there before", again / characters, 0.0,
                               rule.characters))

    return judge


def build_ngram_judge(rule: RepeatedNgrams) -> PageJudge:
    """Ask how much is in the commonest n-gram of words, and in n-grams that came before.

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
    few = ordered[starts[counts == most]]  # most often that is one, which is quicker to look for
    first = int(np.argmax(found == few[0] if len(few) == 1 else np.isin(found, few)))
    return most * int(characters[first:first + length].sum())


def count_repeated(words: Hashes, characters: NDArray[np.int64], length: int) -> int:
    """Count the characters in runs that came before, each once. Shapes: words, characters [W]."""
    found = hash_runs(words, length)
    order = np.argsort(found, kind="stable")
    again = order[1:][found[order[1:]] == found[order[:-1]]]
    if not len(again):
        return 0
    edges = np.zeros(len(words) + 1, np.int64)
    np.add.at(edges, again, 1)
    np.add.at(edges, again + length, -1)
    return int(characters[np.cumsum(edges[:-1]) > 0].sum())
