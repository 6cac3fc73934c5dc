"""Examples of a labelled file: their names and places, the columns that hold what, their cells, and labels as
numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError, suggest_name
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns, make_missing_column_error, read_rows

Tally = Counter[str]
"""How often something was done to a file that a person should know of, by what it is called: "tags repaired"."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a row: for error messages, and as the name of the row in predictions."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"

    @property
    def name(self) -> str:
        """A short name, such as `dev.tsv:17`."""
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a labelled file."""

    place: Place
    """Where it is."""
    name: str
    """Its id: that of the file where it has one, else file and line."""


@dataclass(frozen=True, slots=True)
class Column:
    """Something that a task reads from a file."""

    role: str
    """The task's key that names the column."""
    usual: tuple[str, ...]
    """The names that such columns usually have, the likeliest first."""
    needed: bool = True
    """Whether the task cannot do without."""


TEXT = Column("text", ("text", "sentence", "sentence1", "anchor", "premise", "question", "question1", "text1", "review",
                       "document", "content", "query"))
PAIR = Column("pair", ("pair", "positive", "sentence2", "hypothesis", "question2", "text2", "sentence", "passage",
                       "answer"), needed=False)
LABEL = Column("label", ("label", "labels", "class", "category", "target", "gold_label"))
SCORE = Column("score", ("score", "label", "similarity", "similarity_score", "target", "value"))
NEGATIVE = Column("negative", ("negative", "hard_negative", "negative_text"), needed=False)
NAMES = ("id", "_id", "guid", "idx")
"""Columns that name a row."""


def requested_columns(settings: object, columns: Sequence[Column]) -> dict[str, str | None]:
    """Return the names that a task's settings give the columns, by role; None where they name none."""
    return {column.role: getattr(settings, column.role, None) for column in columns}


def find_columns(source: SourceFile, expected: Sequence[Column], requested: Mapping[str, str | None]) -> dict[str, str]:
    """Return the column of each role: the one that the settings name, or else the first with a usual name.

    Raises `InputError` that names what was found and what is needed.
    """
    known, found = list_columns(source), dict[str, str]()
    missing: list[Column] = []
    for column in expected:
        name = requested.get(column.role)
        if name is not None and name not in known:
            raise make_missing_column_error(name, known, source.name)
        free = [usual for usual in column.usual if usual in known and usual not in found.values()
                and usual not in requested.values()]
        if name is not None or free:
            found[column.role] = name or free[0]
        elif column.needed:
            missing.append(column)
    if missing:
        raise missing_columns_error(missing, known, source.name)
    return found


def missing_columns_error(missing: Sequence[Column], known: Sequence[str], where: str) -> InputError:
    """Return the error for roles that no column has."""
    roles = " and for the ".join(one.role for one in missing)
    words = " ".join(f"task.{one.role}=COLUMN" for one in missing)
    usual = " and ".join(one.usual[0] for one in missing)
    return InputError(f"no column for the {roles}; columns: {', '.join(known)}", where=where,
                      remedy=f"say which with {words}, or call {'it' if len(missing) == 1 else 'them'} {usual}")


def parse_finite(value: Any) -> float | None:
    """Return a number, also one that is written as a text; None for what is none, NaN and infinity included."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one row that a task reads, by role."""

    example: Example
    values: Mapping[str, object]

    def text(self, role: str) -> str:
        """Return a text. Raises `InputError` for a cell that holds none."""
        value = self.values.get(role)
        if not isinstance(value, str):
            kind = "nothing" if value is None else type(value).__name__
            raise InputError(f"the {role} is {kind}, not text", where=str(self.example.place),
                             remedy="choose a text column, or leave the row out")
        if not value.strip():
            raise InputError(f"the {role} is empty", where=str(self.example.place),
                             remedy="fill it, or leave the row out")
        return value

    def word(self, role: str) -> str:
        """Return a label: a word, or a whole number or truth value as a word. Raises `InputError` where it is none."""
        value = self.values.get(role)
        if isinstance(value, bool | int) or (isinstance(value, str) and value.strip()):
            return str(value).strip()
        raise InputError(f"has no {role}" if value in (None, "") else f"the {role} is {str(value)[:40]!r}",
                         where=str(self.example.place), remedy="fill it with one word, or leave the row out")

    def number(self, role: str) -> float:
        """Return a number. Raises `InputError` where the cell holds none."""
        value = self.values.get(role)
        found = parse_finite(value)
        if found is None:
            raise InputError(f"the {role} is {str(value)[:40]!r}, no number", where=str(self.example.place),
                             remedy="fill it, or leave the row out")
        return found


def read_cells(source: SourceFile, expected: Sequence[Column], requested: Mapping[str, str | None]) -> Iterator[Cells]:
    """Yield the cells that a task reads, row by row. Raises `InputError` as `find_columns` and `text.tables`."""
    columns = find_columns(source, expected, requested)
    name = next((one for one in list_columns(source) if one in NAMES and one not in columns.values()), None)
    for row in read_rows(source, [*columns.values(), *([name] if name else [])]):
        for column in columns.values():
            if column not in row.cells:
                raise make_missing_column_error(column, list(row.cells), f"{source.name}, line {row.line}")
        place, own = Place(source.name, row.line), None if name is None else row.cells.get(name)
        yield Cells(Example(place, place.name if own in (None, "") else str(own)),
                    {role: row.cells[column] for role, column in columns.items()})


def number_labels(labels: Sequence[str], known: tuple[str, ...]) -> NDArray[Any]:
    """Return the number of each label. Shapes: [N]."""
    places = {label: number for number, label in enumerate(known)}
    return np.array([places[label] for label in labels], dtype=np.int64)


def refuse_unknown(found: Sequence[tuple[Example, str]], known: tuple[str, ...]) -> None:
    """Raise `InputError` for the first label that is not known, with how many rows have such a one."""
    names = set(known)
    wrong = [(one, label) for one, label in found if label not in names]
    if wrong:
        one, label = wrong[0]
        rows = len({other.place for other, _ in wrong})
        more = f" (and {rows - 1} more rows have such labels)" if rows > 1 else ""
        raise InputError(f"label {label!r} is not among the {len(known)} that are learned{more}", where=str(one.place),
                         remedy=f"{suggest_name(label, list(known))}; leave the rows out, or train on that label too")
