"""The whole job of `saucier score`: files in, scores with intervals out, and two methods compared."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from saucier.errors import InputError, nearest
from saucier.tasks.metrics.classes import ClassScore
from saucier.tasks.metrics.intervals import influence
from saucier.tasks.metrics.metric import Metric
from saucier.tasks.scores.golds import Golds, read_golds
from saucier.tasks.scores.matching import Matched, Paired, as_kind, grouped, guessed_kind, match
from saucier.tasks.scores.predictions import read_predictions
from saucier.tasks.scores.scored import (
    KINDS,
    Score,
    metrics_for,
    offered,
    per_class,
    score_difference,
    scored,
)

LEVEL = 0.05
TOGETHER = {"tokens": " ", "texts": " ‖ "}
"""Columns that hold a list of texts, and what stands between them."""
MOST_DIFFERENT = 5
"""Rows shown on either side where two methods differ most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to score, as a person says it."""

    files: tuple[str, ...]
    """One file of predictions, or two to compare."""
    gold: str | None = None
    column: str | None = None
    """Of the golds."""
    kind: str | None = None
    metrics: tuple[str, ...] = ()
    group: str | None = None
    """A column: rows with the same value in it are one ranking."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
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
class Apart:
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
class Report:
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
    compared: tuple[Compared, ...] = ()
    apart: tuple[Apart, ...] = ()
    disagreeing: int = 0
    """Rows on which the two files say something else."""

    def as_json(self) -> dict[str, Any]:
        """Give everything, null where a number is not defined."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def _plain(value: Any) -> Any:
    """Replace what JSON cannot say."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return value


def score_files(asked: Asked) -> Report:
    """Read, match, score and compare.

    Errors: `InputError` as told in `predictions`, `golds` and `matching`, and for a metric or kind that is none.
    """
    golds = read_golds(asked.gold, asked.column) if asked.gold else None
    found = [match(read_predictions(name), golds) for name in asked.files]
    check_same_rows(asked.files, found)
    if asked.group:
        found = [grouped(one, asked.group) for one in found]
    kind = asked.kind or ("rankings" if asked.group else guessed_kind(found[0]))
    if kind not in KINDS:
        raise InputError(f"no kind of task {kind!r}", where="--kind", remedy=nearest(kind, list(KINDS)))
    found = [as_kind(one, kind) for one in found]
    return report(asked, kind, found, golds)


def check_same_rows(names: Sequence[str], found: Sequence[Matched]) -> None:
    """Raise `InputError` where two files that bring their own golds are not about the same rows."""
    first = found[0]
    for name, other in zip(names, found, strict=True):
        if len(first.rows) != len(other.rows):
            raise InputError(f"{len(other.rows)} rows, but {names[0]} has {len(first.rows)}", where=name,
                             remedy="compare predictions for the same rows")
        for one, two in zip(first.rows, other.rows, strict=True):
            if one.gold != two.gold or one.name != two.name:
                what = f"the row {two.name!r} with gold {two.gold!r}" if two.name != one.name else \
                    f"gold {two.gold!r} for {two.name!r}"
                raise InputError(f"has {what}, but {names[0]} has {one.name!r} with {one.gold!r} there",
                                 where=two.where, remedy="compare predictions for the same rows, in the same order")


def report(asked: Asked, kind: str, found: Sequence[Matched], golds: Golds | None) -> Report:
    """Score what was matched."""
    truth, answers = found[0].golds, [one.predictions for one in found]
    metrics = chosen(asked.metrics, kind, truth, answers)
    classes = per_class(kind, truth, answers[0]) if len(found) == 1 else ()
    scores = tuple(scored(metrics, truth, one, asked.seed) for one in answers)
    read_as = f"{asked.gold}, {golds.read_as}" if golds else "in the predictions"
    head = Report(kind, asked.kind is None, len(truth), read_as, found[0].how, short_names(asked.files),
                  tuple(one.missing for one in found), scores, classes)
    return head if len(found) == 1 else with_comparison(head, metrics, found, asked.seed)


def short_names(files: Sequence[str]) -> tuple[str, ...]:
    """Name files by what tells them apart: `A` and `B` for `runs/A/held-out.jsonl` and `runs/B/held-out.jsonl`."""
    stems = tuple(Path(name).stem for name in files)
    if len({*stems}) == len(stems):
        return stems
    parts = [Path(name).parts for name in files]
    first = common(parts)
    last = common([one[:first - 1 if first else None:-1] for one in parts])
    found = tuple("/".join(one[first:len(one) - last]) for one in parts)
    return found if all(found) and len({*found}) == len(found) else tuple(
        f"{stem} ({number})" for number, stem in enumerate(stems, start=1))


def common(rows: Sequence[Sequence[str]]) -> int:
    """Return how many first items of all rows are the same."""
    return next((place for place, items in enumerate(zip(*rows, strict=False)) if len({*items}) > 1),
                min(map(len, rows)))


def chosen(names: Sequence[str], kind: str, golds: Sequence[Any], answers: Sequence[Sequence[Any]]) \
        -> tuple[Metric, ...]:
    """Take the metrics that were asked for, or the usual ones. Raises `InputError` for a name that is none."""
    if not names:
        return metrics_for(kind, golds, *answers)
    known = {slug(metric.name): metric for metric in offered(kind, golds, *answers)}
    for name in names:
        if slug(name) not in known:
            raise InputError(f"no metric {name!r} of {kind}", where="--metric",
                             remedy=nearest(slug(name), list(known)))
    return tuple(known[slug(name)] for name in names)


def slug(name: str) -> str:
    """Write a metric's name as an option: `entity F1 (iob2)` is entity-f1-iob2."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def with_comparison(head: Report, metrics: Sequence[Metric], found: Sequence[Matched], seed: int) -> Report:
    """Compare two files by every metric, and find the rows where they differ most."""
    first, second = found
    lines = []
    for metric in metrics:
        one = score_difference(metric, first.golds, (first.predictions, second.predictions), seed=seed)
        lines.append(Compared(metric.name, one.value, one.low, one.high, one.p, one.units_p,
                              verdict(one.value, one.units_p, (one.low, one.high), metric, head.names)))
    unequal = sum(one.prediction != two.prediction for one, two in zip(first.rows, second.rows, strict=True))
    return replace(head, compared=tuple(lines), apart=most_different(metrics[0], first, second), disagreeing=unequal)


def verdict(value: float, p: float, ends: tuple[float, float], metric: Metric, names: Sequence[str]) -> str:
    """Say which file is better, where both the test and the interval say so."""
    if p > LEVEL or not (ends[0] > 0 or ends[1] < 0):
        return "not told apart by these rows"
    return f"{names[0] if (value > 0) == (metric.better == 'higher') else names[1]} is better"


def most_different(metric: Metric, first: Matched, second: Matched) -> tuple[Apart, ...]:
    """List the rows whose answers are worth most for either side, by the first metric."""
    worth = influence(*(metric.measure(first.golds, one.predictions) for one in (first, second)))
    worth = worth if metric.better == "higher" else -worth
    order = np.argsort(-worth, kind="stable")
    places = [*order[:MOST_DIFFERENT], *order[::-1][:MOST_DIFFERENT]]
    return tuple(Apart(first.rows[place].name, first.rows[place].gold, first.rows[place].prediction,
                       second.rows[place].prediction, text_of(first.rows[place]), float(worth[place]))
                 for place in dict.fromkeys(map(int, places))
                 if first.rows[place].prediction != second.rows[place].prediction and abs(worth[place]) > 0)


def text_of(row: Paired) -> str:
    """Give the first text beside a row: a column of its own, the texts that `finetune` and `predict` write, or words.
    """
    texts = [value if isinstance(value, str) else TOGETHER[name].join(map(str, value))
             for name, value in row.extras.items()
             if isinstance(value, str) or (name in TOGETHER and isinstance(value, list))]
    return max(texts[:2], key=len, default="")
