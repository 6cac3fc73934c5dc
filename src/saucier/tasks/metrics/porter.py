"""Porter's stemmer for English: `caresses -> caress`, `relational -> relat`. Used by ROUGE, which was defined with it.

A word is [C](VC)^m[V] with runs C of consonants and V of vowels; m, its *measure*, decides which endings may go. The
rules are tables of (ending, replacement); of those that fit, the longest ending decides, and is replaced if its
condition holds.

Source: Porter 1980, "An algorithm for suffix stripping", Program 14(3). We follow the variant that the reference ROUGE
scorer uses (NLTK's), which departs from the paper: a list of irregular words; `-ies`, `-ied` to `-ie` in words of four
letters; `-y` to `-i` only after a consonant that is not the first letter; `-alli` stemmed once more; `-fulli`; `-logi`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

Condition = Callable[[str], bool]
Rule = tuple[str, str, Condition | None]

IRREGULAR = {form: stem for stem, forms in {
    "sky": "sky skies", "die": "dying", "lie": "lying", "tie": "tying", "news": "news", "inning": "innings inning",
    "outing": "outings outing", "canning": "cannings canning", "howe": "howe", "proceed": "proceed", "exceed": "exceed",
    "succeed": "succeed"}.items() for form in forms.split()}


def stem(word: str) -> str:
    """Give the stem of an English word in lower case."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _double_suffix, _suffix, _long_suffix, _final_e, _double_l):
        word = step(word)
    return word


def _is_consonant(word: str, place: int) -> bool:
    """Tell vowels: a e i o u, and y behind a consonant."""
    if word[place] in "aeiou":
        return False
    return word[place] != "y" or place == 0 or not _is_consonant(word, place - 1)


def _measure(stem: str) -> int:
    kinds = [_is_consonant(stem, place) for place in range(len(stem))]
    return sum(now and not before for before, now in itertools.pairwise(kinds))


def _has_vowel(stem: str) -> bool:
    return not all(_is_consonant(stem, place) for place in range(len(stem)))


def _positive(stem: str) -> bool:
    return _measure(stem) > 0


def _above_one(stem: str) -> bool:
    return _measure(stem) > 1


def _double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1)


def _short(word: str) -> bool:
    """Tell Porter's *o: consonant, vowel, consonant other than w, x, y; in this variant also just vowel, consonant."""
    kinds = [_is_consonant(word, place) for place in range(len(word))]
    if len(word) == 2:
        return kinds == [False, True]
    return kinds[-3:] == [True, False, True] and word[-1] not in "wxy"


def _apply(word: str, rules: tuple[Rule, ...]) -> str:
    """Let the first rule whose ending fits decide (so longer endings stand first)."""
    for ending, replacement, condition in rules:
        if word.endswith(ending):
            head = word[:len(word) - len(ending)]
            return head + replacement if condition is None or condition(head) else word
    return word


def _rules(table: str, condition: Condition) -> tuple[Rule, ...]:
    """Read "ational:ate ..." into rules that share a condition."""
    pairs = (entry.split(":") for entry in table.split())
    return tuple((ending, replacement, condition) for ending, replacement in pairs)


PLURAL: tuple[Rule, ...] = (("sses", "ss", None), ("ies", "i", None), ("ss", "ss", None), ("s", "", None))
DOUBLE_SUFFIX = _rules("ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous "
                       "ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al "
                       "iviti:ive biliti:ble fulli:ful", _positive)
SUFFIX = _rules("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:", _positive)
LONG_SUFFIX: tuple[Rule, ...] = (
    *_rules("al: ance: ence: er: ic: able: ible: ant: ement: ment: ent:", _above_one),
    ("ion", "", lambda head: _above_one(head) and head[-1] in "st"),
    *_rules("ou: ism: ate: iti: ous: ive: ize:", _above_one))


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _apply(word, PLURAL)


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _positive(word[:-3]) else word
    for ending in ("ed", "ing"):
        head = word[:-len(ending)]
        if word.endswith(ending) and _has_vowel(head):
            return _mend(head)
    return word


def _mend(head: str) -> str:
    """Give back what `-ed` and `-ing` had taken: conflat(e), hop(p), fil(e)."""
    if head.endswith(("at", "bl", "iz")):
        return head + "e"
    if _double_consonant(head):
        return head if head[-1] in "lsz" else head[:-1]
    return head + "e" if _measure(head) == 1 and _short(head) else head


def _final_y(word: str) -> str:
    head = word[:-1]
    return head + "i" if word.endswith("y") and len(head) > 1 and _is_consonant(head, len(head) - 1) else word


def _double_suffix(word: str) -> str:
    if word.endswith("alli") and _positive(word[:-4]):
        return _double_suffix(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _positive(word[:-3]) else word
    return _apply(word, DOUBLE_SUFFIX)


def _suffix(word: str) -> str:
    return _apply(word, SUFFIX)


def _long_suffix(word: str) -> str:
    return _apply(word, LONG_SUFFIX)


def _final_e(word: str) -> str:
    head = word[:-1]
    if word.endswith("e") and (_above_one(head) or (_measure(head) == 1 and not _short(head))):
        return head
    return word


def _double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _above_one(word[:-1]) else word
