"""What a cleaning met: documents, words and bytes before and after, and what each rule took, with examples."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

EXAMPLES = 3
"""Examples kept of each rule: the first ones."""
SHOWN = 160
"""Characters of a text that an example shows."""


class _Counted(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Amount(_Counted):
    """How much text."""

    documents: int = 0
    """How many texts."""
    words: int = 0
    """What stands between white space."""
    bytes: int = 0
    """In UTF-8."""

    def add(self, text: str, words: int) -> None:
        """Count a document."""
        self.documents += 1
        self.words += words
        self.bytes += len(text) if text.isascii() else len(text.encode("utf-8"))

    def __iadd__(self, other: Amount) -> Self:
        self.documents += other.documents
        self.words += other.words
        self.bytes += other.bytes
        return self


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

    def show(self, example: Example) -> None:
        """Keep an example, if there is room; one of each document is enough."""
        known = [(one.source, one.line) for one in self.examples]
        if len(known) < EXAMPLES and (example.source, example.line) not in known:
            self.examples.append(example)

    @property
    def taken(self) -> int:
        """All that the rule did."""
        return self.documents + self.lines + self.changed + self.sentences

    def __iadd__(self, other: RuleTally) -> Self:
        self.documents += other.documents
        self.lines += other.lines
        self.changed += other.changed
        self.sentences += other.sentences
        self.examples = [*self.examples, *other.examples][:EXAMPLES]
        return self


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

    def __iadd__(self, other: Tally) -> Self:
        self.before += other.before
        self.after += other.after
        self.emptied += other.emptied
        self.cut += other.cut
        self.empty += other.empty
        self.repaired += other.repaired
        self.unchecked += other.unchecked
        for kind, tally in other.rules.items():
            self.rules.setdefault(kind, RuleTally())
            self.rules[kind] += tally
        return self


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    flat = " ".join(text[:4 * SHOWN].split())
    return flat if len(flat) <= SHOWN else f"{flat[:SHOWN - 1]}…"
