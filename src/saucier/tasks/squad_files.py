"""Files of questions about texts: SQuAD's own JSON, a paragraph in each line, or a question in each row.

Source: Rajpurkar et al. 2016, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822 (questions without an answer).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError
from saucier.files import parse_json
from saucier.tasks.examples import Cells, Column, Example, Place, Tally, cells
from saucier.text.sources import Source, text_blocks
from saucier.text.tables import columns_of, rows

QUESTION = Column("question", ("question", "query", "text"))
CONTEXT = Column("context", ("context", "passage", "paragraph", "document", "article"))
ANSWERS = Column("answers", ("answers", "answer", "answer_text", "text"))
START = Column("answer_start", ("answer_start", "start"), needed=False)
MOVED = "answers stand elsewhere than is told: taken where their text is nearest"
FOUND = "answers have no place: taken where their text stands first"
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


@dataclass(frozen=True, slots=True)
class Raw:
    """A question whose answers were not looked for yet."""

    example: Example
    question: str
    context: str
    answers: list[tuple[str, int | None]]


def questions(source: Source, tally: Tally, asked: Mapping[str, str | None], *, labelled: bool) -> Iterator[Raw]:
    """Yield the questions of a file in any of the three forms. Raises `InputError` for a row that is not one."""
    document = whole_document(source)
    if document is not None:
        for title in document:
            for paragraph in member(title, "paragraphs", list, source.name):
                yield from of_paragraph(paragraph, Place(source.name, 1), labelled=labelled)
    elif source.format in ("jsonl", "parquet") and "qas" in columns_of(source):
        for row in rows(source, None):
            yield from of_paragraph(dict(row.cells), Place(source.name, row.line), labelled=labelled)
    else:
        wanted = (QUESTION, CONTEXT, ANSWERS, START) if labelled else (QUESTION, CONTEXT)
        for cell in cells(source, wanted, asked):
            where = str(cell.example.place)
            answers = references(cell.values["answers"], where, cell.values.get("answer_start")) if labelled else []
            yield Raw(cell.example, cell.text("question"), cell.text("context"), answers)


def whole_document(source: Source) -> list[dict[str, Any]] | None:
    """Return the `data` of a file in SQuAD's own form; None for a file of lines."""
    if source.format != "jsonl" or ".json" not in source.name or ".jsonl" in source.name:
        return None
    try:
        document = parse_json("".join(text_blocks(source)))
    except json.JSONDecodeError:
        return None
    if not isinstance(document, dict) or "data" not in document:
        return None
    found: list[dict[str, Any]] = member(document, "data", list, source.name)
    return found


def member(value: Any, name: str, kind: type, where: str) -> Any:
    """Return a field of an object. Raises `InputError` where it is missing or of another kind."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise InputError(f"no {name!r} of the kind {kind.__name__} where SQuAD's form has one", where=where,
                         remedy='write {"context": ..., "qas": [{"id", "question", "answers"}]}')
    return found


def of_paragraph(paragraph: Mapping[str, Any], place: Place, *, labelled: bool) -> Iterator[Raw]:
    """Yield the questions of a paragraph."""
    for number, one in enumerate(member(paragraph, "qas", list, str(place)), start=1):
        name = str(one.get("id") or f"{place.name}:{number}") if isinstance(one, dict) else ""
        where = f"{place}, question {name}"
        row = Cells(Example(Place(f"{place.file}, question {name}", place.line), name),
                    {"question": member(one, "question", str, where),
                     "context": member(paragraph, "context", str, where)})
        known = labelled and not one.get("is_impossible")
        yield Raw(row.example, row.text("question"), row.text("context"),
                  references(one.get("answers"), where) if known else [])


def references(value: Any, where: str, start: Any = None) -> list[tuple[str, int | None]]:
    """Return answers with the places that are told of them. Raises `InputError` for what is none."""
    match value:
        case None | "" | []:
            return []
        case str():
            return [(value, number_of(start))]
        case {"text": str(text), **rest}:
            return [(text, number_of(rest.get("answer_start")))]
        case {"text": list(texts), **rest}:
            starts = rest.get("answer_start")
            told = [*(starts if isinstance(starts, list) else []), *[None] * len(texts)]
            return [(str(text), number_of(at)) for text, at in zip(texts, told, strict=False)]
        case list():
            return [one for item in value for one in references(item, where)]
        case _:
            raise InputError(f"the answers are {type(value).__name__}", where=where,
                             remedy='write a text, a list of texts, or [{"text": ..., "answer_start": ...}]')


def number_of(value: Any) -> int | None:
    """Return a place; None where none is told."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()) else None


def place_of(text: str, start: int | None, context: str) -> int | None:
    """Return where an answer begins: as told, or else the nearest place (the first) where its text stands."""
    if start is not None and text and context.startswith(text, start):
        return start
    places, at = list[int](), context.find(text) if text else -1
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    return min(places, key=lambda place: abs(place - (start or 0)), default=None)


def located(raw: Raw, tally: Tally) -> tuple[tuple[Reference, ...], int]:
    """Return the answers that stand in the context, and how many do not."""
    found: list[Reference] = []
    for text, start in raw.answers:
        place = place_of(text, start, raw.context)
        if place is not None:
            found.append(Reference(text, place))
            tally.update([] if place == start else [FOUND if start is None else MOVED])
    return tuple(found), len(raw.answers) - len(found)


def read_questions(source: Source, tally: Tally, asked: Mapping[str, str | None], *, labelled: bool,
                   drop: bool) -> Iterator[Question]:
    """Yield questions with the answers that stand in their contexts.

    Others are dropped and counted, with the question where none is left. Raises `InputError` for the first of them
    where nothing is to be dropped.
    """
    lost: list[Raw] = []
    for raw in questions(source, tally, asked, labelled=labelled):
        answers, missing = located(raw, tally)
        lost += [raw] * missing
        if answers or not missing:
            yield Question(raw.example.place, raw.example.name, raw.question, raw.context,
                           answers if labelled else None)
    if lost and not drop:
        text = next(text for text, start in lost[0].answers if place_of(text, start, lost[0].context) is None)
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise InputError(f"the answer {text[:60]!r} does not stand in its text{more}",
                         where=str(lost[0].example.place), remedy=REMEDY)
    tally.update({"answers do not stand in their text: dropped": len(lost)} if lost else {})
