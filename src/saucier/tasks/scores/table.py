"""Scores on the screen: a line for each metric, for each class, for each comparison."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from saucier.tasks.scores.job import Apart, Report
from saucier.tasks.scores.scored import Score

WIDEST = 40
"""Characters of an answer that are shown."""
LONGEST_NAME = 24
"""Characters of a file's name in a heading."""
MOST_CLASSES = 60


def render(found: Report) -> RenderableType:
    """Lay a report out for a person."""
    parts: list[RenderableType] = [Text(line, style="dim") for line in opening(found)]
    parts += [Text(), scores_table(found)]
    if found.classes:
        parts += [Text(), classes_table(found)]
    if found.compared:
        parts += [Text(), comparison_table(found), *map(Text, verdicts(found)), Text(), *rows_apart(found)]
    return Group(*parts)


def opening(found: Report) -> list[str]:
    """Say what was scored, and as what."""
    guess = " (guessed from the values; --kind changes it)" if found.guessed else ""
    lines = [f"{found.rows:,} rows scored as {found.kind}{guess}", f"golds: {found.read_as}; matched {found.matched}"]
    lines += [f"{name}: {count:,} rows have no prediction (null)"
              for name, count in zip(found.names, found.missing, strict=True) if count]
    return lines


def number(value: float, *, signed: bool = False) -> str:
    """Write a score with four digits behind the point; two for those that go to 100."""
    if not math.isfinite(value):
        return "not defined"
    digits = 4 if abs(value) < 9.99995 else 2
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def interval_text(low: float, high: float, *, signed: bool = False) -> str:
    """Write an interval."""
    return f"{number(low, signed=signed)} … {number(high, signed=signed)}" if math.isfinite(low) else ""


def new_table(*headings: str) -> Table:
    """Make a table of ours: the first column is a name, which may be folded, the others are numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", style="" if place else "cyan",
                         no_wrap=bool(place), overflow="fold")
    return table


def scores_table(found: Report) -> Table:
    """Show every metric with its interval; of two files beside one another, narrow enough for 80 columns."""
    if len(found.names) == 1:
        table = new_table("", "score", "95 % interval", "count", "")
        for [one] in zip(*found.scores, strict=True):
            table.add_row(one.name, number(one.value), interval_text(one.low, one.high), f"{one.count:,}", one.unit)
        return table
    table = new_table("(95 % interval)", *map(brief, found.names), "")
    for row in zip(*found.scores, strict=True):
        cells = [f"{number(one.value)} ({interval_text(one.low, one.high)})" for one in row]
        table.add_row(row[0].name, *cells, f"{row[0].count:,} {row[0].unit}")
    return table


def brief(name: str) -> str:
    """Shorten a name in its middle."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half - 1]}…{name[-half:]}"


def score_line(one: Score) -> str:
    """Write one score in a line: `accuracy 0.8730 (0.8492 … 0.8935, 872 rows)`."""
    return f"{one.name} {number(one.value)} ({interval_text(one.low, one.high)}, {one.count:,} {one.unit})"


def classes_table(found: Report) -> Table:
    """Show every class, the most frequent ones where there are many."""
    table = new_table("class", "precision", "recall", "F1", "count", "predicted")
    shown = sorted(found.classes, key=lambda one: -one.count)[:MOST_CLASSES]
    for one in [row for row in found.classes if row in shown]:
        table.add_row(one.name, number(one.precision), number(one.recall), number(one.f1), f"{one.count:,}",
                      f"{one.predicted:,}")
    if len(found.classes) > len(shown):
        table.add_row(f"… {len(found.classes) - len(shown)} more, with --json")
    return table


def comparison_table(found: Report) -> Table:
    """Show how far two files are apart by each metric."""
    first, second = map(brief, found.names)
    table = new_table(f"{first} − {second}", "difference", "95 % interval", "p (exchanged)", "p (bootstrap)")
    for one in found.compared:
        table.add_row(one.name, number(one.difference, signed=True), interval_text(one.low, one.high, signed=True),
                      f"{one.p:.2g}", f"{one.bootstrap_p:.2g}")
    return table


def verdicts(found: Report) -> list[str]:
    """Say which file is better, by which metrics."""
    said = dict.fromkeys(one.verdict for one in found.compared)
    return [f"{verdict}: {', '.join(one.name for one in found.compared if one.verdict == verdict)}" for verdict in said]


def rows_apart(found: Report) -> list[RenderableType]:
    """Show the rows where two files differ most."""
    head = Text(f"They differ on {found.disagreeing:,} of {found.rows:,} rows; what each answer is worth "
                f"({found.scores[0][0].name}):", style="dim")
    if not found.apart:
        return [head]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("id", "worth", "gold", *map(brief, found.names), "text"):
        table.add_column(heading, justify="right" if heading == "worth" else "left",
                         no_wrap=heading in ("id", "worth"), overflow="fold")
    for one in found.apart:
        cells = (one.gold, one.first, one.second, one.text)
        table.add_row(Text(one.id, style="cyan"), worth(one), *(Text(shortened(value)) for value in cells))
    return [head, table]


def worth(one: Apart) -> str:
    """Write how much a row's answer is worth."""
    return f"{one.worth:+.2g}".replace("-", "−")


def shortened(value: Any) -> str:
    """Write a value in few letters."""
    text = value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else \
        json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDEST else text[:WIDEST - 1] + "…"
