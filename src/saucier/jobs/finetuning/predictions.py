"""`predict`: a model of a task answers for rows, files and texts; the answers as a result, and as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import refuse_existing
from saucier.jobs.finetuning.predict import AS_TRAINED, RowOptions, TaskAnswers, predict_answers
from saucier.result import Result
from saucier.tasks.examples import describe_dropped
from saucier.tasks.prediction_files import PredictionRow, as_line, as_object, write_predictions


@dataclass(frozen=True, slots=True)
class Predictions(Result):
    """The answers of a model, one for each row or text, in order."""

    rows: tuple[PredictionRow, ...]
    """Each with its id, the prediction, how sure it is, its texts, and what else its row held."""
    lines: tuple[str, ...]
    """The same for a person, one line each."""
    cut: int = 0
    """Rows that were longer than the model reads, and were cut."""
    counted: Mapping[str, int] | None = None
    """What was skipped, dropped or repaired in the files."""
    left_out: tuple[str, ...] = ()
    """What is wrong with rows that were left out: the first ones, and how many more."""
    forms: tuple[str, ...] = ()
    """How files were read, where that is not what their names promise."""
    path: Path | None = None
    """The file that the rows were written into."""

    @property
    def answers(self) -> list[Any]:
        """What was predicted: a class, a number, a text, or a list, for each row."""
        return [row.prediction for row in self.rows]

    def remarks(self) -> list[str]:
        """Return what a person should know of how the rows were read."""
        cut = [f"{self.cut:,} rows were too long and are cut"] if self.cut else []
        counted = [f"{count:,} {what}" for what, count in (self.counted or {}).items()]
        return [*self.forms, *cut, *counted, *self.left_out]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        """Give what was predicted, row by row."""
        return iter(self.answers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"rows": [as_object(row) for row in self.rows], "cut": self.cut, "counted": dict(self.counted or {}),
                "left_out": list(self.left_out), "read": list(self.forms),
                "path": None if self.path is None else str(self.path)}

    def to_json(self) -> str:
        """Return the rows as JSON, one a line, as they are in a file."""
        return "".join(f"{as_line(row)}\n" for row in self.rows)

    def to_arrow(self) -> Any:
        """Return the rows as a table of Arrow: a column for each name that a row has, null where one has none.

        Values of several kinds in one column are there as texts.
        """
        import pyarrow

        objects = [as_object(row) for row in self.rows]
        names = dict.fromkeys(name for one in objects for name in one)
        return pyarrow.table({name: to_column([one.get(name) for one in objects]) for name in names})

    def view(self) -> str:
        """Return the answers, or where they are."""
        return "\n".join(self.lines) if self.path is None else f"{len(self):,} predictions in {self.path}"


def to_column(values: Sequence[Any]) -> Any:
    """Return values as a column of Arrow; of several kinds, as texts."""
    import json

    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array([None if one is None else one if isinstance(one, str) else json.dumps(one)
                              for one in values], "string")


def predict(model: Path | str, files: Sequence[str] = (), texts: Sequence[str] = (), *, base: str | None = None,
            out: Path | None = None, options: RowOptions = AS_TRAINED,
            number_format: str | None = None) -> Predictions:
    """Answer for the rows of files and for texts, and write the rows into a file where one is given.

    Raises `InputError` for nothing to answer for, for a file that is there, and as `predict_answers`.
    """
    if not files and not texts:
        raise InputError("nothing to answer for", where="command line",
                         remedy="give a FILE, - for standard input, or --text TEXT")
    if out is not None:
        refuse_existing(out)
    found = make_predictions(predict_answers(model, files, texts, base=base, options=options,
                                             number_format=number_format), out)
    if out is not None:
        write_predictions(out, found.rows)
    return found


def make_predictions(found: TaskAnswers, path: Path | None) -> Predictions:
    """Put answers together with what their rows held."""
    from saucier.jobs.finetuning.results import format_answer, prediction_row

    request, task = found.request, found.task
    answered = list(zip(found.examples, found.answers, strict=True))
    rows = tuple(prediction_row(task, *one, columns) for one, columns in zip(answered, request.columns, strict=True))
    return Predictions(rows, tuple(format_answer(task, *one) for one in answered), found.cut, dict(request.counted),
                       tuple(describe_dropped(request.faults)), tuple(request.forms), path)
