"""What the rows of a labelled file are called and where they stand, and which of its columns holds what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from saucier.errors import InputError
from saucier.text.sources import Source
from saucier.text.tables import Row, columns_of, missing_column, rows

Tally = Counter[str]
"""How often something was done to a file that a person should know of, by what it is called: "tags repaired"."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands: for error messages, and as the name of the row in predictions."""

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
    """Where it stands."""
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


def found_columns(source: Source, wanted: Sequence[Column], asked: Mapping[str, str | None]) -> dict[str, str]:
    """Return the column of each role: the one asked for, or else the first with a usual name.

    Raises `InputError` that names what was found and what is needed.
    """
    known, found = columns_of(source), dict[str, str]()
    missing: list[Column] = []
    for column in wanted:
        name = asked.get(column.role)
        if name is not None and name not in known:
            raise missing_column(name, known, source.name)
        free = [usual for usual in column.usual if usual in known and usual not in found.values()
                and usual not in asked.values()]
        if name is not None or free:
            found[column.role] = name or free[0]
        elif column.needed:
            missing.append(column)
    if missing:
        raise no_columns(missing, known, source.name)
    return found


def no_columns(missing: Sequence[Column], known: Sequence[str], where: str) -> InputError:
    """Return the error for roles that no column has."""
    roles = " and for the ".join(one.role for one in missing)
    words = " ".join(f"task.{one.role}=COLUMN" for one in missing)
    usual = " and ".join(one.usual[0] for one in missing)
    return InputError(f"no column for the {roles}; columns: {', '.join(known)}", where=where,
                      remedy=f"say which with {words}, or call {'it' if len(missing) == 1 else 'them'} {usual}")


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
        try:
            found = float(value)  # type: ignore[arg-type]  # what is no number raises
        except (TypeError, ValueError):
            found = float("nan")
        if found != found or abs(found) == float("inf"):
            raise InputError(f"the {role} is {str(value)[:40]!r}, no number", where=str(self.example.place),
                             remedy="fill it, or leave the row out")
        return found


def cells(source: Source, wanted: Sequence[Column], asked: Mapping[str, str | None]) -> Iterator[Cells]:
    """Yield the cells that a task reads, row by row. Raises `InputError` as `found_columns` and `text.tables`."""
    columns = found_columns(source, wanted, asked)
    name = next((one for one in columns_of(source) if one in NAMES and one not in columns.values()), None)
    for row in rows(source, [*columns.values(), *([name] if name else [])]):
        for column in columns.values():
            if column not in row.cells:
                raise missing_column(column, list(row.cells), f"{source.name}, line {row.line}")
        yield Cells(example_of(source, row, name), {role: row.cells[column] for role, column in columns.items()})


def example_of(source: Source, row: Row, name: str | None) -> Example:
    """Name a row."""
    place = Place(source.name, row.line)
    own = None if name is None else row.cells.get(name)
    return Example(place, place.name if own in (None, "") else str(own))
