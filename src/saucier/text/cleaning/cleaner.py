"""`Cleaner`: the rules of lines and pages, one after the other, on one document at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from saucier.text.cleaning.config import Cleaning, LineRule, PageRule
from saucier.text.cleaning.lines import LineJudge, line_judge
from saucier.text.cleaning.page import Page
from saucier.text.cleaning.pages import page_judge
from saucier.text.cleaning.sentences import tidy
from saucier.text.cleaning.tally import Example, RuleTally, Tally, excerpt
from saucier.text.cleaning.verdict import Fault, PageJudge


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document stands."""

    source: str
    line: int

    def example(self, text: str, reason: str = "") -> Example:
        """Return an example of what a rule did here."""
        return Example(source=self.source, line=self.line, text=excerpt(text), reason=reason)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A document that a rule dropped."""

    rule: str
    fault: Fault


Step = Callable[[Page, Place], Dropped | None]
Judges = list[tuple[str, LineJudge]]


class Cleaner:
    """Cleans documents, and counts what each rule does."""

    def __init__(self, cleaning: Cleaning, tally: Tally) -> None:
        """Make ready. Raises `InputError` where a rule's file or extra is missing."""
        self._rules = tally.rules
        for rule in cleaning.rules:
            self._rules.setdefault(rule.kind, RuleTally())
        self._tally = tally
        self._steps: list[Step] = []
        for about_lines, rules in groupby(cleaning.rules, lambda rule: isinstance(rule, LineRule)):
            found = list(rules)
            if about_lines:
                self._steps.append(self._line_step([rule for rule in found if isinstance(rule, LineRule)]))
            self._steps += [self._page_step(rule) for rule in found if isinstance(rule, PageRule)]

    def clean(self, page: Page, place: Place) -> Dropped | None:
        """Change a page in place; say which rule dropped it, if one did."""
        raw = page.text
        for step in self._steps:
            if dropped := step(page, place):
                found = self._rules[dropped.rule]
                found.documents += 1
                found.show(place.example(raw, dropped.fault.reason))
                return dropped
        return None

    def _page_step(self, rule: PageRule) -> Step:
        judge: PageJudge = page_judge(rule)

        def step(page: Page, place: Place) -> Dropped | None:
            fault = judge(page)
            return Dropped(rule.kind, fault) if fault else None

        return step

    def _line_step(self, rules: list[LineRule]) -> Step:
        """Run neighbouring rules of lines together: each line goes through all of them."""
        judges: Judges = [(rule.kind, line_judge(rule)) for rule in rules]

        def step(page: Page, place: Place) -> Dropped | None:
            kept, last = [], ""
            for line in page.text.split("\n"):
                stripped = line.strip()
                left, kind = self._through(stripped, judges, place) if stripped else ("", "")
                last = kind or last
                if left is not None:
                    kept.append(left)
            if any(kept):
                page.text = tidy(kept)
                return None
            self._tally.emptied += 1
            return Dropped(last, Fault("took the last line that was left"))

        return step

    def _through(self, line: str, judges: Judges, place: Place) -> tuple[str | None, str]:
        """Send a line through the rules; return what is left, and the rule that removed it."""
        for kind, judge in judges:
            left = judge(line)
            if left is None:
                self._rules[kind].lines += 1
                self._rules[kind].show(place.example(line))
                return None, kind
            if left is not line:
                self._rules[kind].changed += 1
                self._rules[kind].show(place.example(line, f"became {excerpt(left)!r}"))
            line = left
        return line, ""
