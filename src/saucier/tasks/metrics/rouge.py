"""ROUGE: how much of a reference a summary says again, with Porter's stemmer for English (`caresses -> caress`),
which it was defined with. Our own code, equal to the reference scorer on golden pairs.

Words are runs of the letters a-z and digits, in lower case, as in the reference scorer `rouge-score`: other
scripts give no words.

A word is [C](VC)^m[V] with runs C of consonants and V of vowels; m, its *measure*, decides which endings may go. The
rules are tables of (ending, replacement); of those that fit, the longest ending decides, and is replaced if its
condition holds.

Source: Porter 1980, "An algorithm for suffix stripping", Program 14(3). We follow the variant that the reference
ROUGE
scorer uses (NLTK's), which departs from the paper: a list of irregular words; `-ies`, `-ied` to `-ie` in words of
four
letters; `-y` to `-i` only after a consonant that is not the first letter; `-alli` stemmed once more; `-fulli`;
`-logi`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from saucier.errors import InputError

Condition = Callable[[str], bool]
Rule = tuple[str, str | Callable[[str], str], Condition]
"""An ending; what is written in its place, or what makes the word of what is before it; and whether it may go."""

IRREGULAR = {form: stem for stem, forms in {
    "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "inning": "innings inning",
    "outing": "outings outing", "canning": "cannings canning", "howe": "howe", "proceed": "proceed", "exceed": "exceed",
    "succeed": "succeed"}.items() for form in forms.split()}


def porter_stem(word: str) -> str:
    """Give the stem of an English word in lower case."""
    if word in IRREGULAR or len(word) <= 2:
        return IRREGULAR.get(word, word)
    for rules in STEPS:
        word = _apply(word, rules)
    return word


def _apply(word: str, rules: tuple[Rule, ...]) -> str:
    """Let the first rule whose ending fits decide (so longer endings come first)."""
    for ending, replacement, condition in rules:
        if word.endswith(ending):
            head = word.removesuffix(ending)
            if not condition(head):
                return word
            return head + replacement if isinstance(replacement, str) else replacement(head)
    return word


def _shape(word: str) -> str:
    """Write v for each vowel (a e i o u, and y after a consonant) and c for each consonant."""
    found = ""
    for letter in word:
        found += "v" if letter in "aeiou" or (letter == "y" and found.endswith("c")) else "c"
    return found


def _measure_above(least: int) -> Condition:
    return lambda stem: _shape(stem).count("vc") > least


def _short(word: str) -> bool:
    """Tell Porter's *o: consonant, vowel, consonant other than w, x, y; in this variant also just vowel, consonant."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")


def _mend(head: str) -> str:
    """Give back what `-ed` and `-ing` had taken: conflat(e), hop(p), fil(e)."""
    if head.endswith(("at", "bl", "iz")):
        return head + "e"
    shape = _shape(head)
    if head[-2:-1] == head[-1] and shape.endswith("c"):
        return head if head[-1] in "lsz" else head[:-1]
    return head + "e" if shape.count("vc") == 1 and _short(head) else head


def _end_in_i(head: str) -> str:
    """Put `-i` where `-ies` or `-ied` was, and `-ie` in a word of four letters."""
    return head + ("ie" if len(head) == 1 else "i")


def _always(head: str) -> bool:
    return True


def _rules(table: str, condition: Condition) -> tuple[Rule, ...]:
    """Read "ational:ate ..." into rules that share a condition."""
    pairs = (entry.split(":") for entry in table.split())
    return tuple((ending, replacement, condition) for ending, replacement in pairs)


PLURAL: tuple[Rule, ...] = (("ies", _end_in_i, _always), *_rules("sses:ss ss:ss s:", _always))
PAST: tuple[Rule, ...] = (
    ("ied", _end_in_i, _always), ("eed", "ee", _measure_above(0)),
    *((ending, _mend, lambda head: "v" in _shape(head)) for ending in ("ed", "ing")))
FINAL_Y: tuple[Rule, ...] = (("y", "i", lambda head: len(head) > 1 and _shape(head).endswith("c")),)
DOUBLE_SUFFIX: tuple[Rule, ...] = (
    ("alli", lambda head: _apply(head + "al", DOUBLE_SUFFIX), _measure_above(0)),
    ("logi", "log", lambda head: "vc" in _shape(head + "l")),
    *_rules("ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble entli:ent eli:e ousli:ous ization:ize "
            "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble fulli:ful",
            _measure_above(0)))
SUFFIX = _rules("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:", _measure_above(0))
LONG_SUFFIX: tuple[Rule, ...] = (
    ("ion", "", lambda head: _measure_above(1)(head) and head[-1] in "st"),
    *_rules("al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ou: ism: ate: iti: ous: ive: ize:",
            _measure_above(1)))
FINAL_E: tuple[Rule, ...] = (
    ("e", "", lambda head: _measure_above(1)(head) or (_measure_above(0)(head) and not _short(head))),)
DOUBLE_L: tuple[Rule, ...] = (("ll", "l", lambda head: _measure_above(1)(head + "l")),)
STEPS = (PLURAL, PAST, FINAL_Y, DOUBLE_SUFFIX, SUFFIX, LONG_SUFFIX, FINAL_E, DOUBLE_L)


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
    words = (rouge_words(text, stem=stem) for text in (hypothesis, reference))
    ours, theirs = (Counter(zip(*(side[start:] for start in range(n)), strict=False)) for side in words)
    return _overlap((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(hypothesis: str, reference: str, *, stem: bool = False) -> Overlap:
    """Compare the longest common subsequence of words. Source: Lin 2004, §3.1."""
    ours, theirs = (rouge_words(text, stem=stem) for text in (hypothesis, reference))
    return _overlap(len(_common_places(theirs, ours)), len(ours), len(theirs))


def rouge_l_summary(hypothesis: str, reference: str, *, stem: bool = False) -> Overlap:
    """Compare texts of several sentences, one on a line (called ROUGE-Lsum).

    Each reference sentence counts the words that are in a longest common subsequence with any hypothesis sentence; no
    word counts more often than it occurs on either side.

    Source: Lin 2004, §3.2; the clipping is that of the reference scorer.
    """
    ours, theirs = ([rouge_words(line, stem=stem) for line in text.split("\n") if line]
                    for text in (hypothesis, reference))
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
    found = {name: [best_overlap(kind, *pair, stem) for pair in pairs] for name, kind in ROUGE_KINDS.items()}
    return {name: Overlap(*(sum(column) / len(pairs) for column in zip(*overlaps, strict=True)))
            for name, overlaps in found.items()}


def rouge_words(text: str, *, stem: bool = False) -> list[str]:
    """Cut a text into the words that ROUGE compares, by Porter's stems where `stem` is set."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [porter_stem(word) if len(word) > STEM_LONGER_THAN else word for word in found] if stem else found


RougeKind = Callable[[str, str, bool], Overlap]
ROUGE_KINDS: dict[str, RougeKind] = {
    "rouge1": lambda hypothesis, reference, stem: rouge_n(hypothesis, reference, 1, stem=stem),
    "rouge2": lambda hypothesis, reference, stem: rouge_n(hypothesis, reference, 2, stem=stem),
    "rougeL": lambda hypothesis, reference, stem: rouge_l(hypothesis, reference, stem=stem),
    "rougeLsum": lambda hypothesis, reference, stem: rouge_l_summary(hypothesis, reference, stem=stem),
}


def best_overlap(kind: RougeKind, hypothesis: str, reference: str | Sequence[str], stem: bool) -> Overlap:
    """Compare with the reference that gives the best `f1`."""
    choices = [reference] if isinstance(reference, str) else reference
    return max((kind(hypothesis, choice, stem) for choice in choices), key=lambda overlap: overlap.f1)


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
