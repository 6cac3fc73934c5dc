"""Golds out of labelled files: a table's column, the tags of a CoNLL file, the answers of a SQuAD file.

Here only what is to be compared with predictions is read. Axes: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.tasks.squad_files import member, references
from saucier.text.sources import Source, find_sources, lines
from saucier.text.tables import Row, missing_column, rows

COLUMNS = ("gold", "label", "labels", "score", "tags", "answers", "answer", "target", "summary", "summaries",
           "translation", "reference", "references", "output", "completion")
"""Where golds are looked for, in this order."""
LOOKED_AT = 2_000
"""Lines by which a CoNLL file is told from a table."""
CONLL = (".conll", ".iob", ".iob2", ".bio")


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right for one row."""

    gold: Any
    ids: tuple[str, ...]
    """By which a prediction may name it: an id of its own, then file and line."""
    where: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    """The row's other columns."""


@dataclass(frozen=True, slots=True)
class Golds:
    """The golds of a file, and what they were read as."""

    rows: tuple[Gold, ...]
    read_as: str
    """Such as `column 'label'`, for the reader to see."""


def read_golds(name: str, column: str | None = None) -> Golds:
    """Read the golds of a file. `column` names where they stand; otherwise one of `COLUMNS` is taken.

    Errors: `InputError` where no column is known (those that there are get listed) and for a damaged file.
    """
    [source] = find_sources([name])
    if is_conll(source):
        found = tuple(_sentences(source))
        return Golds(_some(found, source), "CoNLL: a word a line, its tag last")
    first = next(rows(source, None), None)
    if first is not None and "qas" in first.cells:
        return Golds(_some(tuple(_questions(source)), source), "SQuAD: the answers of each question")
    column = column or _column(list(first.cells) if first else [], source)
    return Golds(_some(tuple(_cells(source, column)), source), f"column {column!r}")


def _some(found: tuple[Gold, ...], source: Source) -> tuple[Gold, ...]:
    if not found:
        raise InputError("holds no golds", where=source.name, remedy="name the labelled file")
    return found


def _column(known: Sequence[str], source: Source) -> str:
    found = [name for name in COLUMNS if name in known]
    if not found:
        raise InputError(f"which column holds the golds? There are {', '.join(known)}", where=source.name,
                         remedy=f"say which, for example --column {known[-1] if known else 'label'}")
    return found[0]


def _cells(source: Source, column: str) -> Iterator[Gold]:
    for row in rows(source, None):
        where = f"{source.name}, line {row.line}"
        if column not in row.cells:
            raise missing_column(column, list(row.cells), where)
        extras = {name: value for name, value in row.cells.items() if name != column}
        yield Gold(_references(row.cells[column]), _ids(row, source), where, extras)


def _references(value: Any) -> Any:
    """Take the texts out of SQuAD's answers; leave all else."""
    if isinstance(value, list) and value and all(isinstance(one, dict) and "text" in one for one in value):
        return [one["text"] for one in value]
    return value


def _ids(row: Row, source: Source) -> tuple[str, ...]:
    own = next((str(row.cells[name]) for name in ("id", "_id") if row.cells.get(name) is not None), None)
    return (*(() if own is None else (own,)), *places(source, row.line))


def places(source: Source, line: int) -> tuple[str, str]:
    """Name a row by its file and line, without the folder and with."""
    return f"{Path(source.name).name}:{line}", f"{source.name}:{line}"


def _questions(source: Source) -> Iterator[Gold]:
    for row in rows(source, None):
        where = f"{source.name}, line {row.line}"
        for question in member(row.cells, "qas", list, where):
            text, number = member(question, "question", str, where), str(question.get("id"))
            where_asked = f"{where}, question {number}"
            yield Gold([answer for answer, _ in references(question.get("answers"), where_asked)], (number,),
                       where_asked, {"question": text})


def is_conll(source: Source) -> bool:
    """Tell whether a file has a word a line and empty lines between sentences."""
    if source.format not in ("txt", "tsv"):
        return False
    if Path(source.name).suffix.lower() in CONLL:
        return True
    seen = [line for _, line in islice(lines(source), LOOKED_AT)]
    widths = {len(_words(line)) for line in seen if line.strip()}
    return len(widths) == 1 and widths.pop() > 1 and any(not line.strip() for line in seen[:-1])


def _words(line: str) -> list[str]:
    return line.split("\t") if "\t" in line else line.split()


def _sentences(source: Source) -> Iterator[Gold]:
    held: list[list[str]] = []
    start = 1
    for number, line in lines(source):
        if line.strip():
            start = start if held else number
            held.append(_words(line))
        elif held:
            yield _sentence(held, source, start)
            held = []
    if held:
        yield _sentence(held, source, start)


def _sentence(held: list[list[str]], source: Source, start: int) -> Gold:
    short = next((place for place, words in enumerate(held) if len(words) < 2), None)
    if short is not None:
        raise InputError(f"has a word without a tag: {held[short][0]!r}", where=f"{source.name}, line {start + short}",
                         remedy="write the word, a tab and its tag")
    return Gold([words[-1] for words in held], places(source, start), f"{source.name}, line {start}",
                {"tokens": [words[0] for words in held]})
