"""`Cleaner`: the rules of lines and pages in order on one document at a time, and the tally of what each rule took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Self

from pydantic import BaseModel

from saucier.text.cleaning.config import Cleaning, LineRule, PageRule
from saucier.text.cleaning.page import Fault, Page, PageJudge, join_lines
from saucier.text.cleaning.rules import LineJudge, build_line_judge, build_page_judge

EXAMPLES = 3
"""Examples kept of each rule: the first ones."""
SHOWN = 160
"""Characters of a text that an example shows."""


class _Counted(BaseModel):
    def __iadd__(self, other: Self) -> Self:
        for name, value in other:
            if isinstance(value, int | _Counted):
                total = getattr(self, name)
                total += value
                setattr(self, name, total)
        return self


class Amount(_Counted):
    """How much text."""

    documents: int = 0
    """How many texts."""
    words: int = 0
    """What is between white space."""
    bytes: int = 0
    """In UTF-8."""

    def add(self, text: str, words: int) -> None:
        """Count a document."""
        self.documents += 1
        self.words += words
        self.bytes += len(text) if text.isascii() else len(text.encode("utf-8"))


class Example(_Counted):
    """One thing that a rule did."""

    source: str
    """The file."""
    line: int
    """The line (row) where the document starts."""
    text: str
    """What was taken, cut."""
    reason: str = ""
    """What the rule found."""


class RuleTally(_Counted):
    """What one rule took."""

    documents: int = 0
    """Documents dropped."""
    lines: int = 0
    """Lines removed from documents."""
    changed: int = 0
    """Lines changed."""
    sentences: int = 0
    """Sentences removed from documents."""
    examples: list[Example] = []
    """The first few."""

    def keep_example(self, example: Example) -> None:
        """Keep an example, if there is room; one of each document is enough."""
        known = [(one.source, one.line) for one in self.examples]
        if len(known) < EXAMPLES and (example.source, example.line) not in known:
            self.examples.append(example)

    @property
    def taken(self) -> int:
        """All that the rule did."""
        return self.documents + self.lines + self.changed + self.sentences

    def __iadd__(self, other: Self) -> Self:
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        return super().__iadd__(other)


class Tally(_Counted):
    """Everything that was counted, of one piece or of all."""

    before: Amount = Amount()
    """The raw text."""
    after: Amount = Amount()
    """The text that was kept."""
    rules: dict[str, RuleTally] = {}
    """By kind, in the order of the rules."""
    emptied: int = 0
    """Documents that had no line left (dropped by the rule that took the last one)."""
    cut: int = 0
    """Places where a document was too long to be held whole, and went on as another one."""
    empty: int = 0
    """Rows, lines and paragraphs without text."""
    repaired: int = 0
    """Lone halves of surrogate pairs replaced by U+FFFD."""
    unchecked: int = 0
    """Documents that were not compared with all candidates of being near duplicates, since there were too many."""

    def __iadd__(self, other: Self) -> Self:
        for kind, tally in other.rules.items():
            self.rules.setdefault(kind, RuleTally())
            self.rules[kind] += tally
        return super().__iadd__(other)


def shorten_text(text: str) -> str:
    """Return the beginning of a text on one line."""
    flat = " ".join(text[:4 * SHOWN].split())
    return flat if len(flat) <= SHOWN else f"{flat[:SHOWN - 1]}…"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document is."""

    source: str
    line: int

    def example(self, text: str, reason: str = "") -> Example:
        """Return an example of what a rule did here."""
        return Example(source=self.source, line=self.line, text=shorten_text(text), reason=reason)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A document that a rule dropped."""

    rule: str
    fault: Fault


class Cleaner:
    """Cleans documents, and counts what each rule does."""

    def __init__(self, cleaning: Cleaning, tally: Tally) -> None:
        """Make ready. Raises `InputError` where a rule's file or extra is missing."""
        self._tally, self._rules = tally, tally.rules
        for rule in cleaning.rules:
            self._rules.setdefault(rule.kind, RuleTally())
        self._steps: list[Callable[[Page, Place], Dropped | None]] = []
        for _, neighbours in groupby(cleaning.rules, lambda rule: isinstance(rule, LineRule)):
            rules = list(neighbours)
            lines = [(rule.kind, build_line_judge(rule)) for rule in rules if isinstance(rule, LineRule)]
            pages = [(rule.kind, build_page_judge(rule)) for rule in rules if isinstance(rule, PageRule)]
            self._steps.append(partial(self._clean_lines, lines) if lines else partial(self._judge_page, pages))

    def clean(self, page: Page, place: Place) -> Dropped | None:
        """Change a page in place; say which rule dropped it, if one did."""
        raw = page.text
        for step in self._steps:
            if dropped := step(page, place):
                found = self._rules[dropped.rule]
                found.documents += 1
                found.keep_example(place.example(raw, dropped.fault.reason))
                return dropped
        return None

    def _judge_page(self, judges: Sequence[tuple[str, PageJudge]], page: Page, place: Place) -> Dropped | None:
        faults = ((kind, judge(page)) for kind, judge in judges)
        return next((Dropped(kind, fault) for kind, fault in faults if fault), None)

    def _clean_lines(self, judges: Sequence[tuple[str, LineJudge]], page: Page, place: Place) -> Dropped | None:
        """Run neighbouring rules of lines together: each line goes through all of them."""
        kept, last = [], ""
        for line in page.text.split("\n"):
            stripped = line.strip()
            left, kind = self._apply_rules(stripped, judges, place) if stripped else ("", "")
            last = kind or last
            if left is not None:
                kept.append(left)
        if any(kept):
            page.set_text(join_lines(kept))
            return None
        self._tally.emptied += 1
        return Dropped(last, Fault("took the last line that was left"))

    def _apply_rules(self, line: str, judges: Sequence[tuple[str, LineJudge]], place: Place) -> tuple[str | None, str]:
        """Send a line through the rules; return what is left, and the rule that removed it."""
        for kind, judge in judges:
            left = judge(line)
            if left is None:
                self._rules[kind].lines += 1
                self._rules[kind].keep_example(place.example(line))
                return None, kind
            if left is not line:
                self._rules[kind].changed += 1
                self._rules[kind].keep_example(place.example(line, f"became {shorten_text(left)!r}"))
            line = left
        return line, ""
