"""`ask`: what is found for a question is read, and the answer comes with its evidence, or there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.jobs.knowledge.open_index import (
    Hop,
    OpenIndex,
    format_steps,
    list_cuts,
    list_hops,
    name_place,
)
from saucier.jobs.knowledge.spans import open_spans
from saucier.result import Result
from saucier.retrieval.answers import (
    Piece,
    Reader,
    SentenceReader,
    Threshold,
    is_right,
    rank_pieces,
    tune_threshold,
)
from saucier.retrieval.encoder import find_passport
from saucier.retrieval.hybrid import Hit, SearchOptions
from saucier.retrieval.lance_table import lock_writer
from saucier.table import Table
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, find_sources
from saucier.text.reading.tables import read_rows, read_text_cell

if TYPE_CHECKING:
    from rich.console import RenderableType

THRESHOLDS_FILE = "thresholds.json"
NOT_THERE = "not in these documents"
NOTHING = -1e9
"""The score of no piece at all."""
SEARCH_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the search beside the reader: which of these is best is tuned."""
SHOWN = 3
"""Pieces that are shown as evidence, the answer's first."""


def open_reader(index: OpenIndex, reader: str | None) -> Reader:
    """Return what reads hits. Raises `InputError` for a model that answers no questions."""
    return SentenceReader(index.encoder, find_passport(index.path).language) if reader is None else open_spans(reader)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A piece of a document that answers, or nearly does."""

    answer: str
    sentence: str
    """In which it is."""
    before: str
    """The sentence up to the answer."""
    score: float
    hit: Hit
    start: int
    stop: int
    """The characters of the answer, in the text of the document."""
    steps: dict[str, float]
    """The score of each step of reading; those of searching are in `hit`."""

    @classmethod
    def of(cls, piece: Piece) -> Evidence:
        """Return a piece with its sentence."""
        start, stop = piece.sentence
        return cls(piece.text, piece.hit.text[start:stop], piece.hit.text[start:piece.start], piece.score, piece.hit,
                   piece.hit.start + piece.start, piece.hit.start + piece.stop, dict(piece.steps))


@dataclass(frozen=True, slots=True, repr=False)
class Answered(Result):
    """What the documents say to a question."""

    question: str
    answer: str | None
    """None: it is not in these documents."""
    score: float | None
    """Of the best piece; None: nothing was found."""
    threshold: Threshold | None
    """None: none was tuned, and whatever is best is told."""
    evidence: tuple[Evidence, ...]
    """The best pieces, that of the answer first."""
    cut: int = 0
    """Tokens of the question that the encoder does not read."""
    hops: tuple[Hop, ...] = ()
    """What was asked one after the other."""
    hits: tuple[Hit, ...] = ()
    """All that was read."""
    file: Path | None = None
    """The page that was written."""

    def view(self) -> RenderableType:
        """Return what `saucier ask` prints: the answer, and where it stands, marked in its sentence."""
        from rich.console import Group
        from rich.text import Text

        lines = [Text(NOT_THERE if self.answer is None else " ".join(self.answer.split()), style="bold green")]
        lines += [Text(asked, style="cyan") for _, asked in list_hops(self.hops)]
        if self.answer is None and self.evidence:
            lines.append(Text("nearest:", style="dim"))
        for one in self.evidence:
            after = one.sentence[len(one.before) + len(one.answer):]
            steps = ", ".join(f"{name} {value:.3f}" for name, value in one.steps.items())
            lines += [Text(), Text.assemble(one.before, (f"[{one.answer}]", "bold"), after),
                      Text(f"{name_place(one.hit)}", style="dim"),
                      Text(f"score {one.score:.3f} ({steps}), search {format_steps(one.hit)}", style="dim")]
        return Group(*lines, *([] if self.file is None else [Text(f"\n{self.file}")]))

    def remarks(self) -> list[str]:
        """Return that nothing tells a right answer from a wrong one, where no threshold was tuned; what was cut."""
        return [*(["whatever is best is told: no threshold was tuned (saucier ask IDX --tune QUESTIONS.jsonl)"]
                  * (self.threshold is None)), *list_cuts(self.hops)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        least = None if self.threshold is None else self.threshold.model_dump(mode="json")
        return {"question": self.question, "answer": self.answer, "score": self.score, "threshold": least,
                "cut": self.cut, "evidence": [asdict(one) for one in self.evidence],
                "hops": [asdict(one) for one in self.hops], "file": None if self.file is None else str(self.file)}


def ask_index(index: OpenIndex, reader: Reader, question: str, passages: int, where: str | None = None) -> Answered:
    """Answer a question from so many chunks of an index. Raises `InputError` for an empty question."""
    found = index.search(question, SearchOptions(count=passages), where)
    threshold = read_threshold(index.path, reader.name)
    pieces = rank_pieces(reader.read(question, found.hits), threshold.search_weight if threshold else 0.0)
    best = pieces[0] if pieces else None
    told = best is not None and (threshold is None or best.score >= threshold.least)
    return Answered(question, best.text if best is not None and told else None, None if best is None else best.score,
                    threshold, tuple(Evidence.of(one) for one in pieces[:SHOWN]), found.cut, found.hops, found.hits)


def write_answer(found: Answered, target: Path) -> Answered:
    """Write an answer as a page: in its sentence and chunk, with file, page, and the scores of every step and hop."""
    from saucier.report.page import write_page

    hops = {name: number for number, hop in enumerate(found.hops, start=1) for name in hop.found}
    steps = list(dict.fromkeys(name for hit in found.hits for name in hit.steps))
    rows = [[str(number), *([str(hops[hit.id])] if len(found.hops) > 1 else []), name_place(hit),
             *(f"{hit.steps[name]:.3f}" if name in hit.steps else "" for name in steps), f"{hit.score:.3f}"]
            for number, hit in enumerate(found.hits, start=1)]
    heads = ["", *(["hop"] if len(found.hops) > 1 else []), "chunk", *steps, "score"]
    first = heads.index("chunk") + 1
    write_page(target, "answer.html", title=found.question, found=found, not_there=NOT_THERE, name_place=name_place,
               hops=hops, read=Table(heads, rows, numbers=range(first, len(heads))), remarks=found.remarks())
    return replace(found, file=target)


def read_threshold(folder: Path, name: str) -> Threshold | None:
    """Return the threshold that was tuned for a reader; None: none was."""
    found = read_object(folder / THRESHOLDS_FILE).get(name)
    return None if found is None else Threshold(**found)


@dataclass(frozen=True, slots=True, repr=False)
class Tuned(Result):
    """A threshold that was tuned."""

    reader: str
    threshold: Threshold
    right: int
    """Answerable questions whose best piece holds a known answer, whatever its score."""

    def view(self) -> str:
        """Return what `saucier ask --tune` prints."""
        one = self.threshold
        return (f"an answer needs a score of {one.least:.3f}, in which the search has the weight "
                f"{one.search_weight:g}: {one.accuracy:.1%} of {one.questions:,} questions are "
                f"then dealt with rightly ({one.unanswerable:,} have no answer here; of the others {self.right:,} get "
                "a right answer at best)")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"reader": self.reader, "threshold": self.threshold.model_dump(mode="json"), "right": self.right}


def tune_index(index: OpenIndex, reader: Reader, file: str, passages: int, options: ReadOptions = AS_GUESSED) -> Tuned:
    """Tune the least score of an answer, and the weight of the search in it, on questions with known answers.

    The index keeps both. Raises `InputError` for a file without the columns `question` and `answers`, and for questions
    of one kind only.
    """
    asked = [(reader.read(question, index.search(question, SearchOptions(count=passages)).hits), known)
             for question, known in read_questions(file, options)]
    tuned = max((tune_with(reader.name, asked, weight) for weight in SEARCH_WEIGHTS),
                key=lambda one: one.threshold.accuracy)  # of equal ones the smallest weight
    with lock_writer(index.path):
        place = index.path / THRESHOLDS_FILE
        write_json(place, read_object(place) | {reader.name: tuned.threshold.model_dump(mode="json")})
    return tuned


def tune_with(name: str, asked: Sequence[tuple[list[Piece], list[str]]], weight: float) -> Tuned:
    """Tune the least score for one weight of the search. `asked`: what was read for each question, and its answers."""
    best = [next(iter(rank_pieces(pieces, weight)), None) for pieces, _ in asked]
    right = [one is not None and is_right(one.text, known) for one, (_, known) in zip(best, asked, strict=True)]
    found = tune_threshold([NOTHING if one is None else one.score for one in best], right,
                           [bool(known) for _, known in asked])
    return Tuned(name, found.model_copy(update={"search_weight": weight}), sum(right))


def read_questions(file: str, options: ReadOptions) -> list[tuple[str, list[str]]]:
    """Return questions with their answers, which are a list, or texts between |||; none: it is in no document."""
    found = list[tuple[str, list[str]]]()
    source = find_sources([file], options)[0]
    for row in read_rows(source, ["question", "answers"]):
        question, given = read_text_cell(row, "question", source), row.cells.get("answers", "")
        answers = given if isinstance(given, list) else str(given or "").split("|||")
        if question is None or not all(isinstance(one, str) for one in answers):
            raise InputError("is no question with a list of answers", where=f"{source.name}, line {row.line}",
                             remedy='write {"question": "...", "answers": ["..."]}')
        found.append((question, [one.strip() for one in answers if one.strip()]))
    if not found:
        raise InputError("has no questions", where=file, remedy="give some with known answers")
    return found
