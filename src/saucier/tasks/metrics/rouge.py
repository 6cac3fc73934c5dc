"""ROUGE: how much of a reference a summary says again. Our own code, equal to the reference scorer on golden pairs.

Words are runs of the letters a-z and digits, in lower case, as in the reference scorer `rouge-score`: other scripts
give no words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from saucier.errors import InputError
from saucier.tasks.metrics.porter import stem as porter_stem

STEM_LONGER_THAN = 3
"""Words of up to three letters are not stemmed, as in the original Perl script."""


class Overlap(NamedTuple):
    """How much a hypothesis and a reference share, each 0..1.

    The ROUGE of Lin 2004 is the recall; summaries are usually reported by `f1`.
    """

    precision: float
    recall: float
    f1: float


def rouge_n(hypothesis: str, reference: str, n: int, *, stem: bool = False) -> Overlap:
    """Compare n-grams, each counted as often as it occurs in both.

    Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", §2.
    """
    ours, theirs = (_grams(words(text, stem=stem), n) for text in (hypothesis, reference))
    return _overlap((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(hypothesis: str, reference: str, *, stem: bool = False) -> Overlap:
    """Compare the longest common subsequence of words. Source: Lin 2004, §3.1."""
    ours, theirs = (words(text, stem=stem) for text in (hypothesis, reference))
    return _overlap(len(_common_places(theirs, ours)), len(ours), len(theirs))


def rouge_l_summary(hypothesis: str, reference: str, *, stem: bool = False) -> Overlap:
    """Compare texts of several sentences, one on a line (called ROUGE-Lsum).

    Each reference sentence counts the words that are in a longest common subsequence with any hypothesis sentence; no
    word counts more often than it occurs on either side.

    Source: Lin 2004, §3.2; the clipping is that of the reference scorer.
    """
    ours, theirs = ([words(line, stem=stem) for line in text.split("\n") if line] for text in (hypothesis, reference))
    left, right = (Counter(word for line in side for word in line) for side in (ours, theirs))
    lengths = left.total(), right.total()
    hits = 0
    for line in theirs:
        for place in sorted({place for other in ours for place in _common_places(line, other)}):
            word = line[place]
            if left[word] > 0 and right[word] > 0:
                hits, left[word], right[word] = hits + 1, left[word] - 1, right[word] - 1
    return _overlap(hits, *lengths)


def rouge(hypotheses: Sequence[str], references: Sequence[str | Sequence[str]], *,
          stem: bool = False) -> dict[str, Overlap]:
    """Give the mean over a corpus of each of `rouge1`, `rouge2`, `rougeL` and `rougeLsum`.

    Of several references for one hypothesis the one with the best `f1` counts, separately for each kind, as in the
    reference scorer.

    Errors: `InputError` where the lengths differ or nothing is given.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses)} hypotheses for {len(references)} references", where="ROUGE",
                         remedy="give one hypothesis for each reference, and at least one")
    pairs = list(zip(hypotheses, references, strict=True))
    return {name: _mean([best(kind, *pair, stem) for pair in pairs]) for name, kind in KINDS.items()}


def words(text: str, *, stem: bool = False) -> list[str]:
    """Cut a text into the words that ROUGE compares, by Porter's stems where `stem` is set."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [porter_stem(word) if len(word) > STEM_LONGER_THAN else word for word in found] if stem else found


Kind = Callable[[str, str, bool], Overlap]
KINDS: dict[str, Kind] = {
    "rouge1": lambda hypothesis, reference, stem: rouge_n(hypothesis, reference, 1, stem=stem),
    "rouge2": lambda hypothesis, reference, stem: rouge_n(hypothesis, reference, 2, stem=stem),
    "rougeL": lambda hypothesis, reference, stem: rouge_l(hypothesis, reference, stem=stem),
    "rougeLsum": lambda hypothesis, reference, stem: rouge_l_summary(hypothesis, reference, stem=stem),
}


def best(kind: Kind, hypothesis: str, reference: str | Sequence[str], stem: bool) -> Overlap:
    """Compare with the reference that gives the best `f1`."""
    choices = [reference] if isinstance(reference, str) else reference
    return max((kind(hypothesis, choice, stem) for choice in choices), key=lambda overlap: overlap.f1)


def _mean(overlaps: list[Overlap]) -> Overlap:
    return Overlap(*(sum(column) / len(overlaps) for column in zip(*overlaps, strict=True)))


def _grams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(n)), strict=False))


def _overlap(hits: int, ours: int, theirs: int) -> Overlap:
    precision, recall = hits / max(ours, 1), hits / max(theirs, 1)
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0)


def _common_places(line: list[str], other: list[str]) -> list[int]:
    """Give the places in `line` of a longest common subsequence with `other`: of several, the reference scorer's."""
    lengths = [[0] * (len(other) + 1)]
    for word in line:
        above = lengths[-1]
        row = [0]
        for column, candidate in enumerate(other):
            row.append(above[column] + 1 if word == candidate else max(above[column + 1], row[column]))
        lengths.append(row)
    return _walk_back(lengths, line, other)


def _walk_back(lengths: list[list[int]], line: list[str], other: list[str]) -> list[int]:
    places: list[int] = []
    i, j = len(line), len(other)
    while i and j:
        if line[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            places.append(i)
        elif lengths[i][j - 1] > lengths[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places[::-1]
