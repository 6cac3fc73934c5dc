"""The job of `saucier score`: files in, scores with intervals out, two methods compared, and the tables of all
that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.errors import InputError, suggest_name
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.matching import MatchedRows, convert_row, group_rows, guess_kind, match
from saucier.tasks.metrics.labels import ClassScore
from saucier.tasks.metrics.metric import Metric, influence
from saucier.tasks.prediction_files import PredictionRow, read_golds, read_predictions
from saucier.tasks.scores import (
    KINDS,
    Score,
    choose_metric,
    metrics_for,
    per_class,
    read_metric,
    score_difference,
    scored,
)
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED

LEVEL = 0.05
TOGETHER = {"tokens": " ", "texts": " ‖ "}
"""Columns that hold a list of texts, and what is between them."""
MOST_DIFFERENT = 5
"""Rows shown on either side where two methods differ most."""


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """How much the first file scores above the second by one metric."""

    name: str
    difference: float
    low: float
    high: float
    bootstrap_p: float
    p: float
    """Of approximate randomization."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A row on which the two files differ."""

    id: str
    gold: Any
    first: Any
    second: Any
    text: str
    """The row's first text, where its file has one."""
    worth: float
    """By how much the first one's answer is worth more, in points of the first metric."""


@dataclass(frozen=True, slots=True)
class ScoreReport(Result):
    """All that `saucier score` says."""

    kind: str
    guessed: bool
    rows: int
    read_as: str
    matched: str
    names: tuple[str, ...]
    missing: tuple[int, ...]
    """Null predictions of each file."""
    scores: tuple[tuple[Score, ...], ...]
    """Of each file."""
    classes: tuple[ClassScore, ...] = ()
    """Of one file alone."""
    compared: tuple[MetricDifference, ...] = ()
    apart: tuple[Disagreement, ...] = ()
    disagreeing: int = 0
    """Rows on which the two files say something else."""

    def view(self) -> RenderableType:
        """Return what `saucier score` prints."""
        return render_report(self)


def score_files(files: Sequence[str], gold: str | None = None, *, column: str | None = None, kind: str | None = None,
                metrics: Sequence[str] = (), group: str | None = None, seed: int = 0,
                options: ReadOptions = AS_GUESSED) -> ScoreReport:
    """Read, match and score one file of predictions, or two and compare them.

    `column` holds the golds, in a file that is read by `options`; rows with the same value in the column `group` are
    one ranking; `metrics` instead of the usual ones. Errors: `InputError` as in `predictions`, `golds` and `matching`,
    and for a metric or kind that is none.
    """
    golds = read_golds(gold, column, options) if gold else None
    found = [match(read_predictions(name), golds) for name in files]
    check_same_rows(files, found)
    if group:
        found = [group_rows(one, group) for one in found]
    what = kind or ("rankings" if group else guess_kind(found[0]))
    if what not in KINDS:
        raise InputError(f"no kind of task {what!r}", where="--kind", remedy=suggest_name(what, list(KINDS)))
    found = [replace(one, rows=tuple(convert_row(row, what) for row in one.rows)) for one in found]
    truth, answers = found[0].golds, [one.predictions for one in found]
    chosen = choose_metrics(metrics, what, truth, answers)
    classes = per_class(what, truth, answers[0]) if len(found) == 1 else ()
    scores = tuple(scored(chosen, truth, one, seed) for one in answers)
    head = ScoreReport(what, kind is None, len(truth),
                       f"{gold}, {golds.read_as}" if golds else "in the predictions", found[0].how, short_names(files),
                       tuple(one.missing for one in found), scores, classes)
    return head if len(found) == 1 else add_comparison(head, chosen, found, seed)


def check_same_rows(names: Sequence[str], found: Sequence[MatchedRows]) -> None:
    """Raise `InputError` where two files that bring their own golds are not about the same rows."""
    first = found[0]
    for name, other in zip(names, found, strict=True):
        if len(first.rows) != len(other.rows):
            raise InputError(f"{len(other.rows)} rows, but {names[0]} has {len(first.rows)}", where=name,
                             remedy="compare predictions for the same rows")
        for one, two in zip(first.rows, other.rows, strict=True):
            if one.gold != two.gold or one.id != two.id:
                what = f"the row {two.id!r} with gold {two.gold!r}" if two.id != one.id else \
                    f"gold {two.gold!r} for {two.id!r}"
                raise InputError(f"has {what}, but {names[0]} has {one.id!r} with {one.gold!r} there",
                                 where=two.where, remedy="compare predictions for the same rows, in the same order")


def short_names(files: Sequence[str]) -> tuple[str, ...]:
    """Name files by what differs: `A` and `B` for `runs/A/held-out.jsonl` and `runs/B/held-out.jsonl`."""
    stems = tuple(Path(name).stem for name in files)
    if len({*stems}) == len(stems):
        return stems
    parts = [Path(name).parts for name in files]
    first = count_shared_prefix(parts)
    last = count_shared_prefix([one[:first - 1 if first else None:-1] for one in parts])
    found = tuple("/".join(one[first:len(one) - last]) for one in parts)
    return found if all(found) and len({*found}) == len(found) else tuple(
        f"{stem} ({number})" for number, stem in enumerate(stems, start=1))


def count_shared_prefix(rows: Sequence[Sequence[object]]) -> int:
    """Return how many first items of all rows are the same."""
    return next((place for place, items in enumerate(zip(*rows, strict=False)) if len({*items}) > 1),
                min(map(len, rows)))


def choose_metrics(names: Sequence[str], kind: str, golds: Sequence[Any], answers: Sequence[Sequence[Any]]) \
        -> tuple[Metric, ...]:
    """Take the requested metrics, or the usual ones. Raises `InputError` for an unknown name."""
    if not names:
        return metrics_for(kind, golds, *answers)
    return tuple(choose_metric(read_metric(name, "--metric"), kind, golds, *answers, where="--metric")
                 for name in names)


def add_comparison(head: ScoreReport, metrics: Sequence[Metric], found: Sequence[MatchedRows],
                   seed: int) -> ScoreReport:
    """Compare two files by every metric, and find the rows where they differ most."""
    first, second = found
    lines = []
    for metric in metrics:
        one = score_difference(metric, first.golds, (first.predictions, second.predictions), seed=seed)
        lines.append(MetricDifference(metric.name, one.value, one.low, one.high, one.p, one.units_p,
                                      verdict(one.value, one.units_p, (one.low, one.high), metric, head.names)))
    unequal = sum(one.prediction != two.prediction for one, two in zip(first.rows, second.rows, strict=True))
    return replace(head, compared=tuple(lines), apart=most_different(metrics[0], first, second), disagreeing=unequal)


def verdict(value: float, p: float, ends: tuple[float, float], metric: Metric, names: Sequence[str]) -> str:
    """Say which file is better, where both the test and the interval say so."""
    if p > LEVEL or not (ends[0] > 0 or ends[1] < 0):
        return "not told apart by these rows"
    return f"{names[0] if (value > 0) == (metric.better == 'higher') else names[1]} is better"


def most_different(metric: Metric, first: MatchedRows, second: MatchedRows) -> tuple[Disagreement, ...]:
    """List the rows whose answers are worth most for either side, by the first metric."""
    worth = influence(*(metric.measure(first.golds, one.predictions) for one in (first, second)))
    worth = worth if metric.better == "higher" else -worth
    order = np.argsort(-worth, kind="stable")
    places = [*order[:MOST_DIFFERENT], *order[::-1][:MOST_DIFFERENT]]
    return tuple(Disagreement(str(first.rows[place].id), first.rows[place].gold, first.rows[place].prediction,
                              second.rows[place].prediction, text_of(first.rows[place]), float(worth[place]))
                 for place in dict.fromkeys(map(int, places))
                 if first.rows[place].prediction != second.rows[place].prediction and abs(worth[place]) > 0)


def text_of(row: PredictionRow) -> str:
    """Give the first text of a row: a column of its own, the texts that `finetune` and `predict` write, or words.
    """
    texts = [value if isinstance(value, str) else TOGETHER[name].join(map(str, value))
             for name, value in row.extras.items()
             if isinstance(value, str) or (name in TOGETHER and isinstance(value, list))]
    return max(texts[:2], key=len, default="")


WIDEST = 40
"""Characters of an answer that are shown."""
LONGEST_NAME = 24
"""Characters of a file's name in a heading."""
MOST_CLASSES = 60


def render_report(found: ScoreReport) -> RenderableType:
    """Lay a report out for a person."""
    parts: list[RenderableType] = [Text(line, style="dim") for line in opening_lines(found)]
    parts += [Text(), scores_table(found)]
    if found.classes:
        parts += [Text(), classes_table(found)]
    if found.compared:
        verdicts = [f"{outcome}: {', '.join(one.name for one in found.compared if one.verdict == outcome)}"
                    for outcome in dict.fromkeys(one.verdict for one in found.compared)]
        parts += [Text(), comparison_table(found), *map(Text, verdicts), Text(), *disagreement_lines(found)]
    return Group(*parts)


def opening_lines(found: ScoreReport) -> list[str]:
    """Say what was scored, and as what."""
    guess = " (guessed from the values; --kind changes it)" if found.guessed else ""
    lines = [f"{found.rows:,} rows scored as {found.kind}{guess}", f"golds: {found.read_as}; matched {found.matched}"]
    lines += [f"{name}: {count:,} rows have no prediction (null)"
              for name, count in zip(found.names, found.missing, strict=True) if count]
    return lines


def format_score(value: float, *, signed: bool = False) -> str:
    """Write a score with four digits after the point; two for those that go to 100."""
    if not math.isfinite(value):
        return "not defined"
    digits = 4 if abs(value) < 9.99995 else 2
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def format_interval(low: float, high: float, *, signed: bool = False) -> str:
    """Write an interval."""
    return f"{format_score(low, signed=signed)} … {format_score(high, signed=signed)}" if math.isfinite(low) else ""


def figures_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table whose first column is a name, which may be folded; the others are numbers."""
    return Table(headings, rows, numbers=range(1, len(headings)), folded=(0,), colours={0: "cyan"})


def scores_table(found: ScoreReport) -> Table:
    """Show every metric with its interval; of two files next to each other, narrow enough for 80 columns."""
    if len(found.names) == 1:
        return figures_table(("", "score", "95 % interval", "count", ""),
                             [(one.name, format_score(one.value), format_interval(one.low, one.high), f"{one.count:,}",
                               one.unit) for one in found.scores[0]])
    rows = [(row[0].name, *(f"{format_score(one.value)} ({format_interval(one.low, one.high)})" for one in row),
             f"{row[0].count:,} {row[0].unit}") for row in zip(*found.scores, strict=True)]
    return figures_table(("(95 % interval)", *map(shorten_name, found.names), ""), rows)


def shorten_name(name: str) -> str:
    """Shorten a name in its middle."""
    half = LONGEST_NAME // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half - 1]}…{name[-half:]}"


def classes_table(found: ScoreReport) -> Table:
    """Show every class, the most frequent ones where there are many."""
    shown = sorted(found.classes, key=lambda one: -one.count)[:MOST_CLASSES]
    rows: list[tuple[str, ...]] = [
        (one.name, format_score(one.precision), format_score(one.recall), format_score(one.f1), f"{one.count:,}",
         f"{one.predicted:,}") for one in found.classes if one in shown]
    if len(found.classes) > len(shown):
        rows.append((f"… {len(found.classes) - len(shown)} more, with --json",))
    return figures_table(("class", "precision", "recall", "F1", "count", "predicted"), rows)


def comparison_table(found: ScoreReport) -> Table:
    """Show the difference of two files by each metric."""
    first, second = map(shorten_name, found.names)
    rows = [(one.name, format_score(one.difference, signed=True), format_interval(one.low, one.high, signed=True),
             f"{one.p:.2g}", f"{one.bootstrap_p:.2g}") for one in found.compared]
    return figures_table((f"{first} − {second}", "difference", "95 % interval", "p (exchanged)", "p (bootstrap)"), rows)


def disagreement_lines(found: ScoreReport) -> list[RenderableType]:
    """Show the rows where two files differ most."""
    head = Text(f"They differ on {found.disagreeing:,} of {found.rows:,} rows; what each answer is worth "
                f"({found.scores[0][0].name}):", style="dim")
    if not found.apart:
        return [head]
    rows = [(Text(one.id, style="cyan"), f"{one.worth:+.2g}".replace("-", "−"),
             *map(shorten_value, (one.gold, one.first, one.second, one.text))) for one in found.apart]
    headings = ("id", "worth", "gold", *map(shorten_name, found.names), "text")
    return [head, Table(headings, rows, numbers=(1,), folded=range(2, len(headings)))]


def shorten_value(value: Any) -> str:
    """Write a value in few letters."""
    text = value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else \
        json.dumps(value, ensure_ascii=False)
    return text if len(text) <= WIDEST else text[:WIDEST - 1] + "…"
