"""The rules that drop whole documents: which judge belongs to which rule, and those of C4."""

from __future__ import annotations

import re

from saucier.errors import InputError
from saucier.text.cleaning.config import (
    AlphabeticWords,
    BadWords,
    Bullets,
    Contamination,
    CurlyBrackets,
    Ellipses,
    FewSentences,
    Language,
    LoremIpsum,
    PageRule,
    RepeatedLines,
    RepeatedNgrams,
    RepeatedParagraphs,
    StopWords,
    Symbols,
    WordCount,
    WordLength,
)
from saucier.text.cleaning.contamination import contamination_judge
from saucier.text.cleaning.language import language_judge
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.quality import (
    alphabetic_judge,
    bullet_judge,
    ellipsis_judge,
    stop_word_judge,
    symbol_judge,
    word_count_judge,
    word_length_judge,
)
from saucier.text.cleaning.repetition import line_judge, ngram_judge, paragraph_judge
from saucier.text.cleaning.verdict import ENDLESS, Fault, PageJudge, outside
from saucier.text.cleaning.words import WORDS
from saucier.text.sources import find_sources, lines


def page_judge(rule: PageRule) -> PageJudge:
    """Return the function that asks what a rule says. Raises `InputError` where a file or an extra is missing."""
    match rule:
        case LoremIpsum(phrases=phrases) | CurlyBrackets(phrases=phrases):
            return phrase_judge(phrases)
        case BadWords(file=file):
            return bad_word_judge(file)
        case FewSentences(sentences=sentences):
            return sentence_judge(sentences)
        case Language():
            return language_judge(rule)
        case Contamination():
            return contamination_judge(rule)
        case _:
            return _quality_judge(rule)


def _quality_judge(rule: WordCount | WordLength | Symbols | Bullets | Ellipses | AlphabeticWords | StopWords
                   | RepeatedLines | RepeatedParagraphs | RepeatedNgrams) -> PageJudge:
    match rule:
        case WordCount():
            return word_count_judge(rule)
        case WordLength():
            return word_length_judge(rule)
        case Symbols():
            return symbol_judge(rule)
        case Bullets():
            return bullet_judge(rule)
        case Ellipses():
            return ellipsis_judge(rule)
        case AlphabeticWords():
            return alphabetic_judge(rule)
        case StopWords():
            return stop_word_judge(rule)
        case RepeatedLines():
            return line_judge(rule)
        case RepeatedParagraphs():
            return paragraph_judge(rule)
        case RepeatedNgrams():
            return ngram_judge(rule)


def phrase_judge(phrases: tuple[str, ...]) -> PageJudge:
    """Drop what holds one of some phrases, which are written in lower case."""
    def judge(page: Page) -> Fault | None:
        for phrase in phrases:
            place = page.lower.find(phrase)
            if place >= 0:
                return Fault(f"holds {phrase!r}", page.lower.count("\n", 0, place) + 1)
        return None

    return judge


def sentence_judge(sentences: int) -> PageJudge:
    """Drop what has few sentences."""
    return lambda page: outside("sentences", len(page.sentence_ends), sentences, ENDLESS)


def spaced(phrase: str) -> re.Pattern[str]:
    """Return what finds a phrase between word ends, whatever white space is between its words."""
    words = r"\s+".join(map(re.escape, phrase.split()))
    return re.compile(rf"(?<!\w){words}(?!\w)")


def bad_word_judge(file: str) -> PageJudge:
    """Drop what holds a listed word on its own, or a listed phrase between word ends.

    Raises `InputError` where the list cannot be read, or is empty.
    """
    listed = {" ".join(line.lower().split()) for source in find_sources([file]) for _, line in lines(source)} - {""}
    if not listed:
        raise InputError("lists no bad word", where=file, remedy="write one on each line, or leave the rule out")
    words = {entry for entry in listed if WORDS.fullmatch(entry)}
    phrases = [(entry, spaced(entry)) for entry in sorted(listed - words)]

    def judge(page: Page) -> Fault | None:
        if found := sorted(words.intersection(page.tokens)):
            return Fault(f"holds the listed word {found[0]!r}")
        for entry, pattern in phrases:
            if entry.split()[0] in page.lower and pattern.search(page.lower):
                return Fault(f"holds the listed phrase {entry!r}")
        return None

    return judge
