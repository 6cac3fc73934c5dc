"""Files of golds (a column of a table, the tags of a CoNLL file, the answers of a SQuAD file) and of predictions
(JSONL, a row an object `{"id": "train.tsv:17", "prediction": ..., "gold": ..., ...}`).

A prediction is a text (a class, an answer), a number, a list of texts (tags, labels) or of numbers (scores), or
null.
The gold may be in the row or in another file; whatever else a row holds (its text, probabilities) is kept as
`extras`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from saucier.errors import InputError, suggest_name
from saucier.files import write_text
from saucier.tasks.file_formats import read_answers, read_member
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, SourceFile, find_sources, read_lines
from saucier.text.reading.tables import (
    TableRow,
    make_missing_column_error,
    read_column_blocks,
    read_rows,
    split_columns,
)

COLUMNS = ("gold", "label", "labels", "score", "tags", "answers", "answer", "target", "summary", "summaries",
           "translation", "reference", "references", "output", "completion")
"""Where golds are looked for, in this order."""
LOOKED_AT = 2_000
"""Lines by which a CoNLL file is known from a table."""
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


def read_golds(name: str, column: str | None = None, options: ReadOptions = AS_GUESSED) -> Golds:
    """Read the golds of a file. `column` names their column; otherwise one of `COLUMNS` is taken.

    Errors: `InputError` where no column is known (those that there are get listed) and for a damaged file.
    """
    [source] = find_sources([name], options)
    first = None if is_conll(source) else next(read_rows(source, None), None)
    if is_conll(source):
        found, read_as = _sentences(source), "CoNLL: a word a line, its tag last"
    elif first is not None and "qas" in first.cells:
        found, read_as = _questions(source), "SQuAD: the answers of each question"
    else:
        column = column or _column(list(first.cells) if first else [], source)
        found, read_as = _cells(source, column), f"column {column!r}"
    golds = Golds(tuple(found), read_as)
    if not golds.rows:
        raise InputError("holds no golds", where=source.name, remedy="name the labelled file")
    return golds


def _column(known: Sequence[str], source: SourceFile) -> str:
    found = next((name for name in COLUMNS if name in known), None)
    if found is None:
        raise InputError(f"which column holds the golds? There are {', '.join(known)}", where=source.name,
                         remedy=f"say which, for example --column {known[-1] if known else 'label'}")
    return found


def _cells(source: SourceFile, column: str) -> Iterator[Gold]:
    for row in read_rows(source, None):
        where = f"{source.name}, line {row.line}"
        if column not in row.cells:
            raise make_missing_column_error(column, list(row.cells), where)
        gold: Any = row.cells[column]
        if isinstance(gold, list) and gold and all(isinstance(one, dict) and "text" in one for one in gold):
            gold = [one["text"] for one in gold]  # SQuAD's answers
        own = [str(row.cells[name]) for name in ("id", "_id") if row.cells.get(name) is not None][:1]
        extras = {name: value for name, value in row.cells.items() if name != column}
        yield Gold(gold, (*own, *row_names(source, row.line)), where, extras)


def row_names(source: SourceFile, line: int) -> tuple[str, str]:
    """Name a row by its file and line, without the folder and with."""
    return f"{Path(source.name).name}:{line}", f"{source.name}:{line}"


def _questions(source: SourceFile) -> Iterator[Gold]:
    for row in read_rows(source, None):
        where = f"{source.name}, line {row.line}"
        for question in read_member(row.cells, "qas", list, where):
            text, number = read_member(question, "question", str, where), str(question.get("id"))
            question_place = f"{where}, question {number}"
            yield Gold([answer for answer, _ in read_answers(question.get("answers"), question_place)], (number,),
                       question_place, {"question": text})


def is_conll(source: SourceFile) -> bool:
    """Tell whether a file has a word a line and empty lines between sentences."""
    if source.format not in ("txt", "tsv") or source.delimiter is not None:
        return False
    if Path(source.name).suffix.lower() in CONLL:
        return True
    seen = [line for _, line in islice(read_lines(source), LOOKED_AT)]
    widths = {len(split_columns(line)) for line in seen if line.strip()}
    return len(widths) == 1 and widths.pop() > 1 and any(not line.strip() for line in seen[:-1])


def _sentences(source: SourceFile) -> Iterator[Gold]:
    for block in read_column_blocks(source):
        for number, words in block:
            if len(words) < 2:
                raise InputError(f"has a word without a tag: {words[0]!r}", where=f"{source.name}, line {number}",
                                 remedy="write the word, a tab and its tag")
        start = block[0][0]
        yield Gold([words[-1] for _, words in block], row_names(source, start), f"{source.name}, line {start}",
                   {"tokens": [words[0] for _, words in block]})


ID, PREDICTION, GOLD = "id", "prediction", "gold"


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """One row. `gold` is None where the file has none, or says null; `has_gold` tells which."""

    prediction: Any
    gold: Any = None
    id: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    """File and line, for errors."""
    has_gold: bool = False


def write_predictions(path: Path, predicted: Iterable[PredictionRow]) -> None:
    """Write predictions, atomically; an id or a gold only where there is one."""
    write_text(path, "".join(as_line(one) + "\n" for one in predicted))


def as_line(one: PredictionRow) -> str:
    """Write a row as JSON, in one line."""
    return json.dumps(as_object(one), ensure_ascii=False)


def as_object(one: PredictionRow) -> dict[str, Any]:
    """Return a row as plain JSON values; what JSON has no form for (a date, bytes) is a text."""
    head = ({} if one.id is None else {ID: one.id}) | {PREDICTION: one.prediction}
    gold = {GOLD: one.gold} if one.has_gold or one.gold is not None else {}
    found: dict[str, Any] = plain_value(head | gold | dict(one.extras))
    return found


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it; null for a number that is not finite."""
    match value:
        case None | str() | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(name): plain_value(one) for name, one in value.items()}
        case list() | tuple():
            return [plain_value(one) for one in value]
        case _:
            return str(value)


def read_predictions(name: str) -> list[PredictionRow]:
    """Read a file of predictions.

    Errors: `InputError` with file and line for a row without a prediction, an id that occurs twice, and what `tables`
    finds wrong with the file.
    """
    [source] = find_sources([name])
    found = [_predicted(row, f"{source.name}, line {row.line}") for row in read_rows(source, None)]
    if not found:
        raise InputError("holds no predictions", where=name, remedy="leave it out")
    _check_ids(found)
    return found


def _predicted(row: TableRow, where: str) -> PredictionRow:
    if PREDICTION not in row.cells:
        raise InputError(f"has no {PREDICTION!r}; it has {', '.join(row.cells) or 'nothing'}", where=where,
                         remedy=_nearest_remedy(list(row.cells)))
    extras = {name: value for name, value in row.cells.items() if name not in (ID, PREDICTION, GOLD)}
    number = row.cells.get(ID)
    return PredictionRow(row.cells[PREDICTION], row.cells.get(GOLD), None if number is None else str(number), extras,
                         where, GOLD in row.cells)


def _nearest_remedy(names: list[str]) -> str:
    close = suggest_name(PREDICTION, names) if names else ""
    found = close.removeprefix("did you mean ").rstrip("?")
    return f"rename {found} to 'prediction'" if close.startswith("did") else \
        'write rows such as {"id": "dev.tsv:2", "prediction": "positive"}'


def _check_ids(found: list[PredictionRow]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        if one.id is not None and one.id in seen:
            raise InputError(f"the id {one.id!r} stands in {seen[one.id]} already", where=one.where,
                             remedy="give each row an id of its own, or leave the ids out")
        if one.id is not None:
            seen[one.id] = one.where
