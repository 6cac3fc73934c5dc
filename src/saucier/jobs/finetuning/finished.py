"""What came of a fine-tuning, read from its folder: scores with intervals, and whether simple methods are beaten."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from saucier.checkpoints.hub import TUNED
from saucier.errors import InputError
from saucier.files import read_object
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning
from saucier.jobs.score import format_interval, format_score
from saucier.plain import json_value
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.scores import Score

SCORES = "scores.json"


@dataclass(frozen=True, slots=True)
class BaselineVerdict:
    """Whether the model beats the best of the simple methods, by the first metric, on the same rows."""

    baseline: str
    metric: str
    difference: float
    low: float
    """With `high` the 95 % interval over rows, paired."""
    high: float
    beaten: bool
    """Whether the interval is on the model's side of 0."""

    def line(self) -> str:
        """Say it in one line."""
        found = (f"{self.metric} {format_score(self.difference, signed=True)} "
                 f"({format_interval(self.low, self.high, signed=True)})")
        return f"{'beats' if self.beaten else 'did not beat'} {self.baseline}: {found}"


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What was measured on the held-out or the test rows."""

    rows: int
    scores: tuple[Score, ...]
    baselines: Mapping[str, tuple[Score, ...]]
    """Of simple methods, by their names."""
    verdicts: tuple[BaselineVerdict, ...] = ()
    """For each task that simple methods are known for."""


@dataclass(frozen=True, slots=True)
class Finetuned(Result):
    """A finished fine-tuning: where it is, and what it scores."""

    folder: Path
    settings: Finetuning
    step: int
    """Updates of the weights."""
    splits: Mapping[str, SplitResult]
    """`held-out`, and `test` where there is one."""

    @property
    def model(self) -> Path:
        """The folder of the model, with its tokenizer and task: `saucier.load` and `saucier.predict` open it."""
        return self.folder / "model"

    @property
    def scores(self) -> dict[str, float]:
        """Each metric on the test rows, or on the held-out ones where there are none."""
        return {one.name: one.value for one in self.splits["test" if "test" in self.splits else "held-out"].scores}

    @property
    def beats_baseline(self) -> bool | None:
        """Whether every simple method is beaten on all rows that were measured; None where none is known."""
        found = [one.beaten for split in self.splits.values() for one in split.verdicts]
        return all(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {"folder": str(self.folder), "model": str(self.model), "step": self.step,
                "beats_baseline": self.beats_baseline, "splits": json_value(dict(self.splits)),
                "settings": self.settings.as_dict()}

    def view(self) -> RenderableType:
        """Return a table of the scores, and what they say of simple methods."""
        rows = [[split, one.name, format_score(one.value), format_interval(one.low, one.high), f"{one.count:,}"]
                for split, found in self.splits.items() for one in found.scores]
        lines = [Text(f"{split}: {one.line()}", style="green" if one.beaten else "yellow")
                 for split, found in self.splits.items() for one in found.verdicts]
        table = Table(("", "metric", "score", "95 % interval", "rows"), rows, numbers=(2, 3, 4))
        return Group(table, *lines, Text(str(self.model), style="dim"))


def read_finetuned(folder: Path) -> Finetuned:
    """Read a finished fine-tuning. Raises `InputError` for a folder that holds none."""
    document = read_object(folder / SCORES)
    splits = {name: value for name, value in document.items() if isinstance(value, dict)}
    if not splits:
        raise InputError("holds no finished fine-tuning", where=str(folder), remedy="saucier finetune makes one")
    return Finetuned(folder, read_finetuning(folder / TUNED), int(document.get("step", 0)),
                     {name: read_split(value) for name, value in splits.items()})


def read_split(value: Mapping[str, Any]) -> SplitResult:
    """Read what was measured on one split."""
    return SplitResult(int(value["rows"]), read_scores(value["scores"]),
                       {name: read_scores(scores) for name, scores in value.get("baselines", {}).items()},
                       tuple(BaselineVerdict(**one) for one in value.get("verdicts", ())))


def read_scores(values: Sequence[Mapping[str, Any]]) -> tuple[Score, ...]:
    """Read scores; what is not defined is null in the file."""
    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return tuple(Score(one["name"], number(one["value"]), number(one["low"]), number(one["high"]), one["count"],
                       one["unit"]) for one in values)
