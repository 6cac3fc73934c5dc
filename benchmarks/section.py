"""What a benchmark hands back: a `Section` of RESULTS.md, made of `Row`s; and how it becomes text.

A benchmark is a module with one function `measure(quick: bool) -> Section`; `quick` asks for tiny sizes, to see that
it runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


class LackingError(Exception):
    """What a benchmark needs is not on this machine: data of `../shared`, or a library of the group `bench`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison, or one figure with a limit. `ratio` is ours over theirs, larger is better for us."""

    what: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    target: str = ""
    """What was promised, in words: `at least 1.4`."""
    reached: bool | None = None
    """Whether it was; None where nothing was promised."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, what was done, and the rows."""

    title: str
    about: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Section:
        """Read what `as_dict` gave."""
        return cls(**(values | {"rows": [Row(**row) for row in values["rows"]]}))


def at_least(what: str, ours: str, theirs: str, ratio: float, target: float | None = None) -> Row:
    """Return the row of a comparison, with the ratio that was promised, if any."""
    if target is None:
        return Row(what, ours, theirs, ratio)
    return Row(what, ours, theirs, ratio, f"≥ {target:g}×", ratio >= target)


def at_most(what: str, value: float, limit: float, unit: str) -> Row:
    """Return the row of a figure that is to stay below a limit."""
    return Row(what, f"{value:.3g} {unit}", target=f"≤ {limit:g} {unit}", reached=value <= limit)


def not_measured(name: str, reason: str) -> Section:
    """Return the section of a benchmark that has no figures: one row, with the reason in one line."""
    return Section(name, "", [Row(name, f"not measured: {reason}")])


def markdown(section: Section, stamp: str) -> str:
    """Return a section as markdown; `stamp` says when and on what it was measured."""
    lines = [f"## {section.title}", "", section.about, "", f"*{stamp}*", "",
             "| what | Saucier | the other | ratio | promised | |", "|---|---|---|---|---|---|"]
    for row in section.rows:
        ratio = "" if row.ratio is None else f"**{row.ratio:.2f}×**"
        mark = {True: "yes", False: "**no**", None: ""}[row.reached]
        lines.append(f"| {row.what} | {row.ours} | {row.theirs} | {ratio} | {row.target} | {mark} |")
    return "\n".join([*lines, *(["", *(f"- {note}" for note in section.notes)] if section.notes else [])]) + "\n"
