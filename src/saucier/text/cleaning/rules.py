"""The rules that change lines and those that drop documents: C4's, Gopher's counts and repetition, language,
contamination.

Source of Gopher's: Rae et al. 2021, A1.1, table A1.

Axes: W words, N runs of words.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.config.base import Config
from saucier.errors import InputError, report_missing, suggest_name
from saucier.text.cleaning.config import (
    AlphabeticWords,
    BadWords,
    Bullets,
    Citations,
    Contamination,
    CurlyBrackets,
    Ellipses,
    FewSentences,
    Javascript,
    Language,
    LineRule,
    LongWords,
    LoremIpsum,
    PageRule,
    Policies,
    RepeatedLines,
    RepeatedNgrams,
    RepeatedParagraphs,
    ShortLines,
    StopWords,
    Symbols,
    TerminalPunctuation,
    WordCount,
    WordLength,
)
from saucier.text.cleaning.page import (
    ENDLESS,
    WORDS,
    Fault,
    Page,
    PageJudge,
    check_range,
    hash_runs,
    hash_words,
)
from saucier.text.reading.sources import SourceFile, find_sources, read_lines
from saucier.text.reading.tables import read_rows
from saucier.text.rows.batch import Hashes, mark_members

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
    stop_words = set(rule.words)

    def judge(page: Page) -> Fault | None:
        if len(stop_words.intersection(page.words)) >= rule.least:
            return None
        found = len(stop_words.intersection(page.tokens))
        return check_range(f"of the words {', '.join(rule.words)}", found, rule.least, ENDLESS)

    return judge


def build_repetition_judge(rule: RepeatedLines | RepeatedParagraphs) -> PageJudge:
    """Measure how much is in lines, or in paragraphs (an empty line between), that came before."""
    name = "lines" if isinstance(rule, RepeatedLines) else "paragraphs"

    def judge(page: Page) -> Fault | None:
        parts = page.lines if name == "lines" else [*filter(None, map(str.strip, page.text.split("\n\n")))]
        different = set(parts)
        if len(different) == len(parts):
            return None
        characters = sum(map(len, parts))
        repeated = characters - sum(map(len, different))
        return (check_range(f"of the {name} stood there before", 1 - len(different) / len(parts), 0.0, rule.share)
                or check_range(f"of the characters are in {name} that stood there before", repeated / characters, 0.0,
                               rule.characters))

    return judge


def build_ngram_judge(rule: RepeatedNgrams) -> PageJudge:
    """Measure how much is in the commonest n-gram of words, and in n-grams that came before.

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


CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]", re.IGNORECASE)
LineJudge = Callable[[str], str | None]
"""Returns the same line, a changed one, or None where it is removed."""


def build_line_judge(rule: LineRule) -> LineJudge:
    """Return the function that does what a rule says."""
    match rule:
        case Citations():
            return remove_citations
        case LongWords(characters=characters):
            return lambda line: None if len(line) > characters and any(
                len(word) > characters for word in line.split()) else line
        case TerminalPunctuation(marks=marks, not_marks=not_marks):
            return lambda line: line if line.endswith(marks) and not line.endswith(not_marks) else None
        case ShortLines(words=words):
            return lambda line: line if len(line.split(None, words)) >= words else None
        case Javascript(phrases=phrases) | Policies(phrases=phrases):
            return _without(phrases)


def remove_citations(line: str) -> str:
    """Return a line without the marks of citations and editing."""
    return CITATION.sub("", line).strip() if "[" in line else line


def _without(phrases: tuple[str, ...]) -> LineJudge:
    def judge(line: str) -> str | None:
        lower = line.lower()
        return None if any(phrase in lower for phrase in phrases) else line

    return judge



def build_language_judge(rule: Language) -> PageJudge:
    """Drop what is in another language, or not surely in this one.

    Raises `InputError` where the extra is missing or does not know the language.
    """
    identify, known = load_identifier()
    if rule.code not in known:
        raise InputError(f"no language has the code {rule.code!r}", where="language.code",
                         remedy=suggest_name(rule.code, sorted(known)))

    def judge(page: Page) -> Fault | None:
        code, probability = identify(page.text[:rule.characters])
        if code == rule.code and probability >= rule.probability:
            return None
        return Fault(f"is {code!r} with probability {probability:.2f}, not {rule.code!r} with {rule.probability:g}")

    return judge


@functools.cache
def load_identifier() -> tuple[Callable[[str], tuple[str, float]], frozenset[str]]:
    """Return what finds a text's language and its probability, and the codes that it knows. Loading takes seconds."""
    with report_missing("languages are told apart by py3langid, which is not installed", where="language",
                        remedy="pip install 'saucier[clean]', or leave the rule out"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return found.classify, frozenset(str(code) for code in found.nb_classes)


@dataclass(slots=True)
class Forbidden:
    """The runs of words of evaluation text. Shapes: each array of `runs` [N], sorted."""

    runs: dict[int, Hashes] = field(default_factory=dict)
    """By length; shorter ones come from texts that are shorter than a run."""
    texts: int = 0
    """Lines and cells that are looked for."""
    short: int = 0
    """Those with too few words for it."""


def build_contamination_judge(rule: Contamination) -> PageJudge:
    """Drop what shares a run with evaluation text. Raises `InputError` where that text has no run."""
    forbidden = read_forbidden_runs(rule)

    def judge(page: Page) -> Fault | None:
        for length, known in forbidden.runs.items():
            found = np.flatnonzero(mark_members(hash_runs(page.token_hashes, length), known))
            if len(found):
                words = " ".join(page.tokens[found[0]:found[0] + length])
                return Fault(f"shares {length} words with the evaluation text: {words!r}")
        return None

    return judge


def read_forbidden_runs(rule: Contamination) -> Forbidden:
    """Read evaluation text, once for all pieces. Raises `InputError` where no text has the words to be looked for."""
    stats = [source.path.stat() for source in find_sources(rule.files)]
    return _read_forbidden_files(rule, tuple((stat.st_size, stat.st_mtime_ns) for stat in stats))


@lru_cache(maxsize=1)
def _read_forbidden_files(rule: Contamination, stamps: tuple[tuple[int, int], ...]) -> Forbidden:
    found, forbidden = defaultdict[int, list[Hashes]](list), Forbidden()
    for source in find_sources(rule.files):
        for text in _read_texts(source):
            words = WORDS.findall(text.lower())
            length = min(rule.words, len(words))
            if length >= min(rule.shortest, rule.words):
                found[length].append(hash_runs(hash_words(words), length))
                forbidden.texts += 1
            else:
                forbidden.short += bool(words)
    if not found:
        raise InputError(f"no line or cell has the {rule.shortest} words that a text must have to be looked for",
                         where=", ".join(rule.files), remedy="lower contamination.shortest, or leave --against out")
    forbidden.runs = {length: np.unique(np.concatenate(found[length])) for length in sorted(found, reverse=True)}
    return forbidden


def _read_texts(source: SourceFile) -> Iterator[str]:
    if source.format == "txt":
        yield from (line for _, line in read_lines(source))
        return
    for row in read_rows(source, None):
        yield from (cell for cell in row.cells.values() if isinstance(cell, str))


def build_phrase_judge(rule: LoremIpsum | CurlyBrackets) -> PageJudge:
    """Drop what holds one of some phrases, which are written in lower case."""
    def judge(page: Page) -> Fault | None:
        for phrase in rule.phrases:
            place = page.lower.find(phrase)
            if place >= 0:
                return Fault(f"holds {phrase!r}", page.lower.count("\n", 0, place) + 1)
        return None

    return judge


def build_bad_word_judge(rule: BadWords) -> PageJudge:
    """Drop what holds a listed word on its own, or a listed phrase between word ends.

    Raises `InputError` where the list cannot be read, or is empty.
    """
    listed = {" ".join(line.lower().split()) for source in find_sources([rule.file])
              for _, line in read_lines(source)} - {""}
    if not listed:
        raise InputError("lists no bad word", where=rule.file, remedy="write one on each line, or leave the rule out")
    words = {entry for entry in listed if WORDS.fullmatch(entry)}
    spaced = {entry: r"\s+".join(map(re.escape, entry.split())) for entry in sorted(listed - words)}
    phrases = [(entry, re.compile(rf"(?<!\w){pattern}(?!\w)")) for entry, pattern in spaced.items()]

    def judge(page: Page) -> Fault | None:
        if found := sorted(words.intersection(page.tokens)):
            return Fault(f"holds the listed word {found[0]!r}")
        for entry, pattern in phrases:
            if entry.split()[0] in page.lower and pattern.search(page.lower):
                return Fault(f"holds the listed phrase {entry!r}")
        return None

    return judge


BUILDERS: Mapping[type[Config], Callable[[Any], PageJudge]] = {
    LoremIpsum: build_phrase_judge, CurlyBrackets: build_phrase_judge, BadWords: build_bad_word_judge,
    Language: build_language_judge, Contamination: build_contamination_judge, FewSentences: build_count_judge,
    WordCount: build_count_judge, WordLength: build_count_judge, Symbols: build_count_judge,
    Bullets: build_count_judge, Ellipses: build_count_judge, AlphabeticWords: build_alphabetic_judge,
    StopWords: build_stop_word_judge, RepeatedLines: build_repetition_judge,
    RepeatedParagraphs: build_repetition_judge, RepeatedNgrams: build_ngram_judge,
}
"""What builds the judge of each rule."""


def build_page_judge(rule: PageRule) -> PageJudge:
    """Return the judge of a rule. Raises `InputError` where a file or an extra is missing."""
    return BUILDERS[type(rule)](rule)
