"""Examples of a labelled file: their names and places, the columns that hold what, their cells, and labels as
numbers.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError, suggest_name
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns, make_missing_column_error, read_rows, refuse_missing_column

T = TypeVar("T")
Made = TypeVar("Made")
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
        return f"{os.path.basename(self.file)}:{self.line}"


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
LOOKED_AT = 100
"""Rows of JSONL by which the columns of a file are known: the first one may lack what the others have."""
NAMES = ("id", "_id", "guid", "idx")
"""Columns that name a row."""


def requested_columns(settings: object, columns: Sequence[Column]) -> dict[str, str | None]:
    """Return the names that a task's settings give the columns, by role; None where they name none."""
    return {column.role: getattr(settings, column.role, None) for column in columns}


def find_columns(source: SourceFile, expected: Sequence[Column], requested: Mapping[str, str | None]) -> dict[str, str]:
    """Return the column of each role: the one that the settings name, or else the first with a usual name.

    Raises `InputError` that names what was found and what is needed.
    """
    known, found = list_columns(source, LOOKED_AT), dict[str, str]()
    missing: list[Column] = []
    for column in expected:
        name = requested.get(column.role)
        if name is not None:
            refuse_missing_column(name, known, source.name, column.role)
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
    words = " ".join(f"--column {one.role}=NAME" for one in missing)
    usual = " and ".join(one.usual[0] for one in missing)
    return InputError(f"no column for the {roles}; columns: {', '.join(known)}", where=where,
                      remedy=f"say which with {words} (task.{missing[0].role}=NAME in settings), or call "
                      f"{'it' if len(missing) == 1 else 'them'} {usual}")


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
    columns: Mapping[str, str] = field(default_factory=dict)
    """The column of each role, where the file is a table."""

    def fault(self, role: str, what: str, remedy: str) -> InputError:
        """Return the error for a cell, with its file, row and column."""
        column = f", column {self.columns[role]!r}" if role in self.columns else ""
        return InputError(what, where=f"{self.example.place}{column}", remedy=remedy)

    def text(self, role: str) -> str:
        """Return a text. Raises `InputError` for a cell that holds none."""
        value = self.values.get(role)
        if not isinstance(value, str):
            kind = "nothing" if value is None else type(value).__name__
            raise self.fault(role, f"the {role} is {kind}, not text", "choose a text column, or leave the row out")
        if not value.strip():
            raise self.fault(role, f"the {role} is empty", "fill it, or leave the row out")
        return value

    def texts(self, role: str) -> tuple[str, ...]:
        """Return the text of a cell, or the texts that it lists. Raises `InputError` for a cell that holds none."""
        value = self.values.get(role)
        if not isinstance(value, list) or not value:
            return (self.text(role),)
        return tuple(replace(self, values={role: one}).text(role) for one in value)

    def numbers(self, role: str) -> tuple[float, ...]:
        """Return the numbers that a cell lists. Raises `InputError` for a cell that lists none."""
        value = self.values.get(role)
        if not isinstance(value, list) or not value:
            raise self.fault(role, f"the {role} is no list of numbers", "give a list, as JSONL can hold it")
        return tuple(replace(self, values={role: one}).number(role) for one in value)

    def word(self, role: str) -> str:
        """Return a label: a word, or a number or truth value as a word. Raises `InputError` where it is none."""
        value = self.values.get(role)
        if isinstance(value, float) and math.isfinite(value):  # whole numbers with a gap among them are such in a table
            return str(int(value) if value.is_integer() else value)
        if isinstance(value, bool | int) or (isinstance(value, str) and value.strip()):
            return str(value).strip()
        raise self.fault(role, f"has no {role}" if value in (None, "") else f"the {role} is {str(value)[:40]!r}",
                         "fill it with one word, or leave the row out")

    def number(self, role: str) -> float:
        """Return a number. Raises `InputError` where the cell holds none."""
        value = self.values.get(role)
        found = parse_finite(value)
        if found is None:
            raise self.fault(role, f"the {role} is {str(value)[:40]!r}, no number", "fill it, or leave the row out")
        return found


def read_cells(source: SourceFile, expected: Sequence[Column], requested: Mapping[str, str | None]) -> Iterator[Cells]:
    """Yield the cells that a task reads, row by row; a row without one of the columns is reported to the source.

    Raises `InputError` as `find_columns` and `text.reading.tables`.
    """
    columns = find_columns(source, expected, requested)
    name = next((one for one in list_columns(source) if one in NAMES and one not in columns.values()), None)
    for row in read_rows(source, [*columns.values(), *([name] if name else [])]):
        cells = row.cells
        try:
            values = {role: cells[column] for role, column in columns.items()}
        except KeyError as error:
            source.report(make_missing_column_error(error.args[0], list(cells), f"{source.name}, line {row.line}"))
            continue
        place, own = Place(source.name, row.line), None if name is None else cells.get(name)
        yield Cells(Example(place, place.name if own in (None, "") else str(own)), values, columns)


def read_each(rows: Iterable[T], read: Callable[[T], Made], source: SourceFile) -> Iterator[Made]:
    """Yield what is read of each row; what is wrong with one is reported to its file."""
    for row in rows:
        try:
            found = read(row)
        except InputError as fault:
            source.report(fault)
        else:
            yield found


SHOWN_FAULTS = 10
"""Faults that are listed one by one."""


def list_faults(faults: Sequence[InputError]) -> list[str]:
    """List what is wrong with rows: the first ones by file, row and column, and how many more there are."""
    more = [f"and {len(faults) - SHOWN_FAULTS:,} more"] if len(faults) > SHOWN_FAULTS else []
    return [*(f"{one.where}: {one.what}" for one in faults[:SHOWN_FAULTS]), *more]


def describe_dropped(faults: Sequence[InputError]) -> list[str]:
    """Say how many rows are left out, and list them."""
    if not faults:
        return []
    head = "1 row cannot be used and is" if len(faults) == 1 else f"{len(faults):,} rows cannot be used and are"
    return [f"{head} left out:", *(f"  {line}" for line in list_faults(faults))]


def make_faults_error(faults: Sequence[InputError]) -> InputError:
    """Return the error for rows that cannot be used: all of them at once."""
    if len(faults) == 1:
        one, leave = faults[0], "leave the row out"
        remedy = one.remedy if one.remedy and one.remedy.endswith(leave) else f"{one.remedy}; or {leave}"
        return InputError(one.what, where=one.where, remedy=f"{remedy} with --bad-rows drop")
    return InputError(f"{len(faults):,} rows cannot be used", where="data",
                      remedy="mend them, or let them be left out and counted: --bad-rows drop (data.bad_rows=drop)",
                      more=list_faults(faults))


UNSEEN = -100
"""The number of a label that is never learned; no loss counts it."""


def number_labels(labels: Sequence[str], known: tuple[str, ...]) -> NDArray[Any]:
    """Return the number of each label, `UNSEEN` for one that is not known. Shapes: [N]."""
    places = {label: number for number, label in enumerate(known)}
    return np.array([places.get(label, UNSEEN) for label in labels], dtype=np.int64)


def refuse_unknown(found: Sequence[tuple[Example, str]], known: tuple[str, ...]) -> None:
    """Raise `InputError` for labels that are not known: all rows that have such ones."""
    names = set(known)
    wrong = {one.place: InputError(f"label {label!r} is not among the {len(known)} that are learned",
                                   where=str(one.place), remedy=f"{suggest_name(label, list(known))}; leave the row "
                                   "out, or train on that label too") for one, label in found if label not in names}
    if wrong:
        raise make_faults_error([*wrong.values()])
