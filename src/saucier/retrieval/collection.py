"""Test collections: passages, questions, and which passages answer them.

Three forms are read: folders in BEIR's form, files in SQuAD's form, and HotpotQA's questions, each with paragraphs of
its own, which are pooled. No part of torch is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import is_folder
from saucier.text.reading.sources import SourceFile, find_sources
from saucier.text.reading.tables import TableRow, list_columns, read_rows

CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
"""Files of BEIR's form; the judgements are `qrels.tsv`, or `qrels/SPLIT.tsv`."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that may be found."""

    id: str
    title: str
    """Empty where it has none."""
    text: str

    @property
    def whole(self) -> str:
        """Title and text, as they are searched and embedded."""
        return "\n".join(part for part in (self.title, self.text) if part)


@dataclass(frozen=True, slots=True)
class Question:
    """A text that passages are looked for."""

    id: str
    text: str
    relevance: Mapping[str, float] = field(default_factory=dict)
    """How relevant a passage is, by its id: grades above 0. Empty where nothing is known, or nothing is relevant."""
    answers: tuple[str, ...] = ()
    """Texts, each of which is a right answer; empty where none is known."""

    @property
    def relevant(self) -> tuple[str, ...]:
        """The ids of the passages that answer it."""
        return tuple(self.relevance)


@dataclass(frozen=True, slots=True)
class Collection:
    """Passages and questions, each with an id of its own among its kind."""

    name: str
    """The file or folder that they were read from."""
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]

    @property
    def places(self) -> dict[str, int]:
        """The place of each passage, by its id."""
        return {passage.id: place for place, passage in enumerate(self.passages)}

    def ask_passages(self, places: Sequence[int]) -> Collection:
        """Return the same passages, some of which are the questions."""
        asked = [self.passages[place] for place in places]
        return replace(self, questions=tuple(Question(one.id, one.whole) for one in asked))

    @property
    def answerable(self) -> Collection:
        """The same with the questions alone that a passage is relevant to."""
        return replace(self, questions=tuple(one for one in self.questions if one.relevance))


def read_collection(path: str | Path, *, split: str = "test") -> Collection:
    """Read a folder in BEIR's form, a file in SQuAD's form (a paragraph a line, or the published JSON), or HotpotQA's.

    Of BEIR's folders, questions without a judgement in this split are left out, and judgements of 0 are no relevance.
    Paragraphs that several articles or questions hold are one passage; where a file gives no ids they are `p00000`, ...
    Errors: `InputError` with file and line for what is missing or of another kind, ids that are there twice, judgements
    of unknown ids, and an unknown form.
    Source: Thakur et al. 2021, §3, arXiv:2104.08663; Rajpurkar et al. 2016, arXiv:1606.05250; Yang et al. 2018, §2,
    arXiv:1809.09600.
    """
    if is_folder(path):
        return check_ids(read_beir(Path(path), split))
    (source,) = find_sources([str(path)])
    columns = {*list_columns(source)}
    for needed, read in FORMS.items():
        if {*needed} <= columns:
            return check_ids(read(source))
    raise InputError(f"is no collection of questions: it has {', '.join(sorted(columns))[:200]}", where=str(path),
                     remedy=f"give a folder with {CORPUS}, {QUERIES} and qrels.tsv, or a file with "
                     + " or ".join(" + ".join(needed) for needed in FORMS))


def read_beir(folder: Path, split: str) -> Collection:
    """Read a folder of passages, questions and judgements."""
    names = [folder / CORPUS, folder / QUERIES]
    judgements = folder / f"{JUDGEMENTS}.tsv"
    names.append(judgements if judgements.exists() else folder / JUDGEMENTS / f"{split}.tsv")
    corpus, queries, scores = find_sources([str(name) for name in names])
    passages = tuple(Passage(read_id(row, "_id", corpus), read_text(row, "title", corpus, ""),
                             read_text(row, "text", corpus)) for row in read_rows(corpus, None))
    texts = {read_id(row, "_id", queries): read_text(row, "text", queries) for row in read_rows(queries, None)}
    known, judged = {passage.id for passage in passages}, dict[str, dict[str, float]]()
    for row in read_rows(scores, None):
        question, passage = (read_id(row, name, scores) for name in ("query-id", "corpus-id"))
        if question not in texts or passage not in known:
            wrong, file = (passage, CORPUS) if question in texts else (question, QUERIES)
            raise InputError(f"{wrong!r} is not in {file}", where=locate(row, scores), remedy="give files that belong "
                             "together")
        grades = judged.setdefault(question, {})
        if (grade := read_grade(row, scores)) > 0:
            grades[passage] = grade
    return Collection(str(folder), passages, tuple(Question(name, texts[name], grades)
                                                   for name, grades in judged.items()))


def read_squad(source: SourceFile) -> Collection:
    """Read a paragraph a line, with its questions."""
    return pool_paragraphs(source, read_rows(source, None))


def read_published_squad(source: SourceFile) -> Collection:
    """Read the one object of the published file: articles of paragraphs."""
    rows = [TableRow(paragraph | {"title": article.get("title", "")}, row.line) for row in read_rows(source, None)
            for article in read_list(row, "data", source)
            for paragraph in read_list(TableRow(article, row.line), "paragraphs", source)]
    return pool_paragraphs(source, rows)


def pool_paragraphs(source: SourceFile, rows: Iterable[TableRow]) -> Collection:
    """Make a passage of each different paragraph; of a question without answers no passage is relevant."""
    places, questions = dict[tuple[str, str], str](), list[Question]()
    for row in rows:
        title = read_text(row, "title", source, "").replace("_", " ")  # there it is the address of the article
        passage = name_passage(places, title, read_text(row, "context", source))
        for found in read_list(row, "qas", source):
            question = TableRow(found, row.line)
            answers = tuple(dict.fromkeys(read_text(TableRow(answer, row.line), "text", source)
                                          for answer in read_list(question, "answers", source)))
            questions.append(Question(read_id(question, "id", source), read_text(question, "question", source),
                                      {passage: 1.0} if answers else {}, answers))
    return Collection(source.name, list_passages(places), tuple(questions))


def read_hotpot(source: SourceFile) -> Collection:
    """Pool the paragraphs of all questions; those that support a question's answer are relevant to it."""
    places, questions = dict[tuple[str, str], str](), list[Question]()
    for row in read_rows(source, None):
        relevance = dict[str, float]()
        for cells in read_list(row, "paragraphs", source):
            paragraph = TableRow(cells, row.line)
            passage = name_passage(places, read_text(paragraph, "title", source, ""),
                                   read_text(paragraph, "text", source))
            if cells.get("is_supporting"):
                relevance[passage] = 1.0
        questions.append(Question(read_id(row, "id", source), read_text(row, "question", source), relevance,
                                  (read_text(row, "answer", source),)))
    return Collection(source.name, list_passages(places), tuple(questions))


FORMS: dict[tuple[str, ...], Callable[[SourceFile], Collection]] = {
    ("context", "qas"): read_squad, ("data",): read_published_squad, ("question", "paragraphs"): read_hotpot}
"""How a file is read, by the columns of its first row."""


def name_passage(places: dict[tuple[str, str], str], title: str, text: str) -> str:
    """Return the id of a paragraph: a new one for a new paragraph."""
    return places.setdefault((title, text), f"p{len(places):05d}")


def list_passages(places: Mapping[tuple[str, str], str]) -> tuple[Passage, ...]:
    """Return the passages that were named."""
    return tuple(Passage(name, title, text) for (title, text), name in places.items())


def check_ids(collection: Collection) -> Collection:
    """Return a collection. Raises `InputError` for an empty one, and for an id that is there twice."""
    kinds: dict[str, Sequence[Passage | Question]] = {"passages": collection.passages,
                                                      "questions": collection.questions}
    for kind, members in kinds.items():
        if twice := [name for name, number in Counter(one.id for one in members).items() if number > 1]:
            raise InputError(f"two {kind} have the id {twice[0]!r}", where=collection.name, remedy="rename one")
        if not members:
            raise InputError(f"has no {kind}", where=collection.name, remedy="give another file or split")
    return collection


def locate(row: TableRow, source: SourceFile) -> str:
    """Name the place of a row."""
    return f"{source.name}, line {row.line}"


def read_text(row: TableRow, column: str, source: SourceFile, otherwise: str | None = None) -> str:
    """Return the text of a cell. Raises `InputError` where it holds none, unless there is another to take."""
    value = row.cells.get(column)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise InputError(f"{column} is {'missing' if value is None else type(value).__name__}, not text",
                         where=locate(row, source), remedy=f"give each row a text as {column}")
    return value


def read_id(row: TableRow, column: str, source: SourceFile) -> str:
    """Return an id, which is a word or a whole number. Raises `InputError` where there is none."""
    value = row.cells.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"{column} is {str(value)[:40]!r}, no id", where=locate(row, source),
                         remedy=f"give each row a word or a number as {column}")
    return str(value)


def read_grade(row: TableRow, source: SourceFile) -> float:
    """Return the grade of a judgement. Raises `InputError` where it is no number."""
    try:
        return float(row.cells.get("score", ""))
    except (TypeError, ValueError) as error:
        raise InputError(f"score is {str(row.cells.get('score'))[:40]!r}, no number", where=locate(row, source),
                         remedy="give a grade, 0 for what is not relevant") from error


def read_list(row: TableRow, column: str, source: SourceFile) -> list[dict[str, Any]]:
    """Return the objects that a cell lists. Raises `InputError` where it does not."""
    value = row.cells.get(column)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"{column} is no list of objects", where=locate(row, source),
                         remedy="give the file as it was published")
    return value
