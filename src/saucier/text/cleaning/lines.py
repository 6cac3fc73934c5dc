"""The rules that remove or change single lines of a document."""

from __future__ import annotations

import re
from collections.abc import Callable

from saucier.text.cleaning.config import (
    Citations,
    Javascript,
    LineRule,
    LongWords,
    Policies,
    ShortLines,
    TerminalPunctuation,
)

CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]", re.IGNORECASE)
LineJudge = Callable[[str], str | None]
"""What becomes of a line: the same line, a changed one, or None where it goes."""


def line_judge(rule: LineRule) -> LineJudge:
    """Return the function that does what a rule says."""
    match rule:
        case Citations():
            return without_citations
        case LongWords(characters=characters):
            return lambda line: line if len(line) <= characters or _longest(line) <= characters else None
        case TerminalPunctuation(marks=marks, not_marks=not_marks):
            return lambda line: line if line.endswith(marks) and not line.endswith(not_marks) else None
        case ShortLines(words=words):
            return lambda line: line if len(line.split(None, words)) >= words else None
        case Javascript(phrases=phrases) | Policies(phrases=phrases):
            return _without(phrases)


def without_citations(line: str) -> str:
    """Return a line without the marks of citations and editing."""
    return CITATION.sub("", line).strip() if "[" in line else line


def _longest(line: str) -> int:
    return max(map(len, line.split()), default=0)


def _without(phrases: tuple[str, ...]) -> LineJudge:
    def judge(line: str) -> str | None:
        lower = line.lower()
        return None if any(phrase in lower for phrase in phrases) else line

    return judge
