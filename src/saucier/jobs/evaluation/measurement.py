"""How a model is to be measured, and what was measured: one table, for a person, a program and a notebook."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.jobs.score import figures_table, format_interval, format_score
from saucier.plain import format_quantity, json_value
from saucier.result import Result
from saucier.tasks.scores import Score
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED

if TYPE_CHECKING:
    from rich.console import RenderableType

    from saucier.jobs.pretraining.held_out import RunEvaluation

Baselines = tuple[tuple[str, tuple[Score, ...]], ...]
"""Simple methods by name, each with its scores."""
FOR_ANY = ("changes", "limit", "batch", "dtype", "format", "base", "read", "columns")
"""Options that every kind of model but a run reads."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How a model is measured; None: as its kind is by default."""

    changes: Sequence[str] = ()
    """Words `key.sub=value`: `data.column=review`, `task.label=stars`, `task.kind=ranking`."""
    baselines: bool = False
    """Measure simple methods, too."""
    beams: int | None = None
    """Of a model that writes."""
    limit: int | None = None
    """The first documents, pairs or rows only."""
    stride: int | None = None
    """Tokens between the beginnings of two windows; of a masked model every so-manieth token is hidden at a time."""
    length: int | None = None
    """Tokens of a window; None: as many as the model reads."""
    batch: int | None = None
    """Rows in one pass."""
    memory: int | None = None
    """Tokens that a model with a memory remembers."""
    dtype: str = "auto"
    """Number format of the multiplications."""
    format: str | None = None
    """In which the matrices are read; None: in that of the multiplications."""
    base: str | None = None
    """Of an adapter, instead of the one that it names."""
    read: ReadOptions = AS_GUESSED
    """How files are read."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by their role; that of the text has none ("")."""
    bad_rows: str | None = None
    """drop: labelled rows that cannot be used are left out."""

    @property
    def words(self) -> list[str]:
        """The changes, and what else says how text is read, as words about `data`."""
        said = {"delimiter": self.read.delimiter, "encoding": self.read.encoding,
                **{"column" if role in ("", "text") else role: name for role, name in self.columns.items()}}
        return [*self.changes, *(f"data.{key}={json.dumps(value)}" for key, value in said.items() if value is not None)]

    def refuse_idle(self, kind: str, *read: str) -> None:
        """Raise `InputError` for an option that a kind of model does not read, next to those of any kind."""
        for one in fields(self):
            if getattr(self, one.name) and one.name not in (*FOR_ANY, *read):
                raise InputError(f"a {kind} does not read it", where=f"--{one.name}", remedy="leave it out")


@dataclass(frozen=True, slots=True)
class Evaluation(Result):
    """What was measured of a model."""

    model: str
    kind: str
    """What the model is: `run`, `language model`, `masked language model`, or the kind of its task."""
    scores: tuple[Score, ...]
    """Each with its 95 % interval."""
    notes: tuple[str, ...]
    """What was read, and how it was measured."""
    seconds: float
    """What reading and answering took."""
    amount: int
    """Tokens (of texts) or rows (of a task) that were scored."""
    unit: str
    """`tokens` or `rows`."""
    baselines: Baselines = ()
    run: RunEvaluation | None = None
    """Of a run: what its objective says."""

    def __getitem__(self, name: str) -> Score:
        """Return a score by its name. Raises `KeyError` where there is none of that name."""
        return {one.name: one for one in self.scores}[name]

    @property
    def per_second(self) -> float:
        """Tokens or rows scored in a second."""
        return self.amount / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; those of a run have the keys of its `evaluation.json`."""
        if self.run is not None:
            return self.run.as_json()
        return {"model": self.model, "kind": self.kind, "scores": json_value(self.scores),
                "baselines": json_value(dict(self.baselines)), "notes": list(self.notes),
                f"{self.unit}_per_second": round(self.per_second, 1)}

    def view(self) -> RenderableType:
        """Return what a terminal shows: lines about a run, and else a table with intervals."""
        from rich.console import Group
        from rich.text import Text

        speed = f"{format_quantity(self.per_second)} {self.unit}/s"
        if self.run is not None:
            return Group(*map(Text, [*self.run.lines(), speed]))
        table = figures_table((self.kind, "score", "95 % interval", ""), list(self.table_rows()))
        return Group(*(Text(line, style="dim") for line in self.notes), Text(), table, Text(), Text(speed, style="dim"))


    def table_rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield a row for each score, and under it the same of each simple method, indented."""
        for score in self.scores:
            yield score_cells(score.name, score)
            yield from (score_cells(f"  {name}", one) for name, scores in self.baselines for one in scores
                        if one.name == score.name)


def score_cells(name: str, score: Score) -> tuple[str, str, str, str]:
    """Return the cells of a score."""
    return name, format_score(score.value), format_interval(score.low, score.high), f"{score.count:,} {score.unit}"


def single_baseline(name: str, metric: str, value: float, count: int, unit: str) -> Baselines:
    """Return one simple method with one figure, which has no interval."""
    return ((name, (Score(metric, value, math.nan, math.nan, count, unit),)),)


def join_notes(*notes: str | Iterable[str]) -> tuple[str, ...]:
    """Put lines together, leaving out those that say nothing."""
    return tuple(line for one in notes for line in ([one] if isinstance(one, str) else one) if line)
