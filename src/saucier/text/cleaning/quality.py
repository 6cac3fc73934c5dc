"""Gopher's rules of quality: what natural language looks like when it is counted. Source: Rae et al. 2021, A1.1."""

from __future__ import annotations

from saucier.text.cleaning.config import AlphabeticWords, Bullets, Ellipses, StopWords, Symbols, WordCount, WordLength
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.verdict import ENDLESS, Fault, PageJudge, outside

ELLIPSES = ("...", "…")


def word_count_judge(rule: WordCount) -> PageJudge:
    """Count words."""
    return lambda page: outside("words", len(page.words), rule.least, rule.most)


def word_length_judge(rule: WordLength) -> PageJudge:
    """Average the characters of words."""
    def judge(page: Page) -> Fault | None:
        mean = int(page.lengths.sum()) / max(1, len(page.words))
        return outside("characters a word", mean, rule.least, rule.most)

    return judge


def symbol_judge(rule: Symbols) -> PageJudge:
    """Count hash signs and ellipses for each word."""
    def judge(page: Page) -> Fault | None:
        words = max(1, len(page.words))
        signs = page.text.count("#")
        dots = sum(page.text.count(mark) for mark in ELLIPSES)
        return (outside("hash signs a word", signs / words, 0.0, rule.ratio)
                or outside("ellipses a word", dots / words, 0.0, rule.ratio))

    return judge


def bullet_judge(rule: Bullets) -> PageJudge:
    """Count lines that start with a bullet."""
    def judge(page: Page) -> Fault | None:
        found = sum(line.startswith(rule.marks) for line in page.lines)
        return outside("of the lines start with a bullet", found / max(1, len(page.lines)), 0.0, rule.share)

    return judge


def ellipsis_judge(rule: Ellipses) -> PageJudge:
    """Count lines that end with an ellipsis."""
    def judge(page: Page) -> Fault | None:
        found = sum(line.endswith(ELLIPSES) for line in page.lines)
        return outside("of the lines end with an ellipsis", found / max(1, len(page.lines)), 0.0, rule.share)

    return judge


def alphabetic_judge(rule: AlphabeticWords) -> PageJudge:
    """Count words that hold a letter; that enough words are nothing but letters is quick to see."""
    def judge(page: Page) -> Fault | None:
        words = max(1, len(page.words))
        if sum(map(str.isalpha, page.words)) >= rule.share * words:
            return None
        lettered = sum(word.isalpha() or any(map(str.isalpha, word)) for word in page.words)
        return outside("of the words hold a letter", lettered / words, rule.share, ENDLESS)

    return judge


def stop_word_judge(rule: StopWords) -> PageJudge:
    """Count which of the commonest words there are; mostly they stand there in lower case, without punctuation."""
    wanted = set(rule.words)

    def judge(page: Page) -> Fault | None:
        if len(wanted.intersection(page.words)) >= rule.least:
            return None
        found = len(wanted.intersection(page.tokens))
        return outside(f"of the words {', '.join(rule.words)}", found, rule.least, ENDLESS)

    return judge
