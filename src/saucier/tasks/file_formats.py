"""Published formats of labelled files: SQuAD's JSON (paragraphs in lines and questions in rows, too), and CoNLL's
columns (a word and its tag in a line, an empty line after each sentence).

Source: Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003 Shared Task", §2.1.

Source: Rajpurkar et al. 2016, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822 (questions without an
answer).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from saucier.errors import InputError
from saucier.files import parse_json
from saucier.tasks.examples import Cells, Column, Example, Place, Tally, read_cells, read_each, requested_columns
from saucier.text.reading.sources import SourceFile, read_blocks
from saucier.text.reading.tables import list_columns, read_column_blocks, read_rows

QUESTION = Column("question", ("question", "query", "text"))
CONTEXT = Column("context", ("context", "passage", "paragraph", "document", "article"))
ANSWERS = Column("answers", ("answers", "answer", "answer_text", "text"))
START = Column("answer_start", ("answer_start", "start"), needed=False)
MOVED_ANSWERS = "answers stand elsewhere than is told: taken where their text is nearest"
FOUND_ANSWERS = "answers have no place: taken where their text stands first"
LOST_ANSWERS = "answers do not stand in their text: dropped"
REMEDY = "give answers that are copied from their text, or leave such out with task.misplaced=drop"


@dataclass(frozen=True, slots=True)
class Reference:
    """An answer, and the character of the context at which it begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question(Example):
    """A question, the text that it is about, and what is right."""

    question: str
    context: str
    answers: tuple[Reference, ...] | None
    """None where it is not known; empty where the text does not answer."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The question and the text."""
        return (self.question, self.context)


RawQuestion = tuple[Cells, list[tuple[str, int | None]]]
"""The cells of a question, and its answers with the places that the file gives them."""


def read_raw_questions(source: SourceFile, settings: object, *, labelled: bool) -> Iterator[RawQuestion]:
    """Yield the questions of a file in any of the three forms. Raises `InputError` for a row that is not one."""
    document = whole_document(source)
    if document is not None:
        for title in document:
            for paragraph in read_member(title, "paragraphs", list, source.name):
                yield from paragraph_questions(paragraph, Place(source.name, 1), labelled=labelled)
    elif source.format in ("jsonl", "parquet") and "qas" in list_columns(source):
        for row in read_rows(source, None):
            yield from paragraph_questions(dict(row.cells), Place(source.name, row.line), labelled=labelled)
    else:
        columns = (QUESTION, CONTEXT, ANSWERS, START)
        for cell in read_cells(source, columns if labelled else columns[:2], requested_columns(settings, columns)):
            where = str(cell.example.place)
            answers = read_answers(cell.values["answers"], where, cell.values.get("answer_start")) if labelled else []
            yield cell, answers


def whole_document(source: SourceFile) -> list[dict[str, Any]] | None:
    """Return the `data` of a file in SQuAD's own form; None for a file of lines."""
    if source.format != "jsonl" or ".json" not in source.name or ".jsonl" in source.name:
        return None
    try:
        document = parse_json("".join(read_blocks(source)))
    except json.JSONDecodeError:
        return None
    if not isinstance(document, dict) or "data" not in document:
        return None
    found: list[dict[str, Any]] = read_member(document, "data", list, source.name)
    return found


def read_member(value: Any, name: str, kind: type, where: str) -> Any:
    """Return a field of an object. Raises `InputError` where it is missing or of another kind."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise InputError(f"no {name!r} of the kind {kind.__name__} where SQuAD's form has one", where=where,
                         remedy='write {"context": ..., "qas": [{"id", "question", "answers"}]}')
    return found


def paragraph_questions(paragraph: Mapping[str, Any], place: Place, *, labelled: bool) -> Iterator[RawQuestion]:
    """Yield the questions of a paragraph."""
    for number, one in enumerate(read_member(paragraph, "qas", list, str(place)), start=1):
        name = str(one.get("id") or f"{place.name}:{number}") if isinstance(one, dict) else ""
        where = f"{place}, question {name}"
        row = Cells(Example(Place(f"{place.file}, question {name}", place.line), name),
                    {"question": read_member(one, "question", str, where),
                     "context": read_member(paragraph, "context", str, where)})
        known = labelled and not one.get("is_impossible")
        yield row, read_answers(one.get("answers"), where) if known else []


def read_answers(value: Any, where: str, start: Any = None) -> list[tuple[str, int | None]]:
    """Return answers with the places that the file gives them. Raises `InputError` for what is none."""
    match value:
        case None | "" | []:
            return []
        case str():
            return [(value, parse_number(start))]
        case {"text": str(text), **rest}:
            return [(text, parse_number(rest.get("answer_start")))]
        case {"text": list(texts), **rest}:
            starts = rest.get("answer_start")
            places = [*(starts if isinstance(starts, list) else []), *[None] * len(texts)]
            return [(str(text), parse_number(at)) for text, at in zip(texts, places, strict=False)]
        case list():
            return [one for item in value for one in read_answers(item, where)]
        case _:
            raise InputError(f"the answers are {type(value).__name__}", where=where,
                             remedy='write a text, a list of texts, or [{"text": ..., "answer_start": ...}]')


def parse_number(value: Any) -> int | None:
    """Return a place; None where there is none."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()) else None


def locate_text(text: str, start: int | None, context: str) -> int | None:
    """Return where an answer begins: as the file says, or else the nearest place (the first) that has its text."""
    if start is not None and text and context.startswith(text, start):
        return start
    places = [found.start() for found in re.finditer(f"(?={re.escape(text)})", context)] if text else []
    return min(places, key=lambda place: abs(place - (start or 0)), default=None)


def read_questions(source: SourceFile, tally: Tally, settings: object, *, labelled: bool,
                   drop: bool) -> Iterator[Question]:
    """Yield questions with the answers that are in their contexts, from the columns that a task's settings name.

    Others are dropped and counted, with the question where none is left; where nothing is to be dropped, they are
    reported to the source.
    """
    def read(raw: RawQuestion) -> tuple[Question, bool]:
        row, given = raw
        question, context = row.text("question"), row.text("context")
        answers: list[Reference] = []
        for text, start in given:
            place = locate_text(text, start, context)
            if place is None and not drop:
                raise row.fault("answers", f"the answer {text[:60]!r} does not stand in its text", REMEDY)
            if place is None:
                tally.update([LOST_ANSWERS])
            else:
                answers.append(Reference(text, place))
                tally.update([] if place == start else [FOUND_ANSWERS if start is None else MOVED_ANSWERS])
        return Question(row.example.place, row.example.name, question, context,
                        tuple(answers) if labelled else None), bool(answers) or not given

    for question, kept in read_each(read_raw_questions(source, settings, labelled=labelled), read, source):
        if kept:
            yield question


DOCUMENT = "-DOCSTART-"
"""Begins a document in CoNLL's files; it is no word."""
SKIPPED = f"{DOCUMENT} lines skipped"


def read_sentences(source: SourceFile, tally: Tally) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield the sentences of a file: the line that each begins in, and the columns of its lines.

    Lines that only begin a document are counted. Raises `InputError` for a line with another number of columns than
    the first one.
    """
    columns = 0
    for block in read_column_blocks(source):
        for marks, lines in groupby(block, lambda line: line[1][0] == DOCUMENT):
            found = list(lines)
            if marks:
                tally.update([SKIPPED] * len(found))
                continue
            columns = columns or len(found[0][1])
            for number, cells in found:
                check_columns(cells, columns, f"{source.name}, line {number}")
            yield found[0][0], [cells for _, cells in found]


def check_columns(cells: list[str], columns: int, where: str) -> None:
    """Raise `InputError` for a line that is not like the first one, and for one without a word."""
    if len(cells) != columns:
        raise InputError(f"{len(cells)} columns, but the first line has {columns}", where=where,
                         remedy="write a word and its tag in every line, with a tab between")
    if not cells[0].strip():
        raise InputError("the word is empty", where=where, remedy="fill it, or take the line out")


def take_column(rows: list[list[str]], number: int | None, where: str) -> list[str]:
    """Return one column, counted from 1; None is the last. Raises `InputError` where there is none."""
    count = len(rows[0])
    if count < 2:
        raise InputError("has one column, and tags are needed", where=where, remedy="write the tag behind each word")
    if number is not None and not 1 < number <= count:
        raise InputError(f"column {number} of {count}, where the first holds the words", where=where,
                         remedy=f"give task.column from 2 to {count}")
    return [cells[count - 1 if number is None else number - 1].strip() for cells in rows]
