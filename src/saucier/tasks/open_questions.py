"""Questions whose answers stand in passages that a retriever finds: what tasks that read such passages have in common.

Axes: B questions, K passages of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

from saucier.tasks.encoded_examples import EncodedExamples, Frame, Ragged, order_by_length
from saucier.tasks.examples import Cells, Column, Tally, read_cells, read_each, requested_columns
from saucier.tasks.file_formats import read_raw_questions, whole_document
from saucier.tasks.task import Answer, Encoding, Predictor
from saucier.tasks.written.definitions import Retrieval
from saucier.tasks.written.text_to_text import WrittenText, read_references
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns
from saucier.text.tokenizer.model_inputs import EncodedRow

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch
    from saucier.objectives.latent_passages import Found, Retriever

UNANSWERED = "questions without an answer left out"
SHOWN_EVIDENCE = 3
"""Passages that are shown with an answer."""


class PassageLayout(Protocol):
    """How a reader's row is made of a passage and a question; each is encoded alone."""

    @property
    def question_length(self) -> int:
        """The most tokens of a question, which have room in every row."""

    @property
    def texts(self) -> int:
        """How many texts the tokenizer puts its special tokens around: one, or two."""

    def join_title(self, title: str, text: str) -> str:
        """Return what is read of a passage."""

    def row(self, frame: Frame, question: Sequence[int], passage: Sequence[int]) -> EncodedRow:
        """Put both into a row."""

    def start(self, frame: Frame, question: int) -> int:
        """Return where the passage begins, next to a question of so many tokens."""


@dataclass(frozen=True, slots=True)
class PassageFirst:
    """A title, a passage and a question as one text. Source: Lewis et al. 2020, code release."""

    after_title: str
    question_length: int
    texts: int = 1

    def join_title(self, title: str, text: str) -> str:
        """The title, then the text."""
        return self.after_title.join(part for part in (title, text) if part)

    def row(self, frame: Frame, question: Sequence[int], passage: Sequence[int]) -> EncodedRow:
        """The passage, then the question."""
        return frame.row([*passage, *question])

    def start(self, frame: Frame, question: int) -> int:
        """After the special tokens."""
        return frame.start()


@dataclass(frozen=True, slots=True)
class QuestionThenPassage(PassageFirst):
    """The question before both, as one text. Source: Izacard and Grave 2021, §3, arXiv:2007.01282."""

    def row(self, frame: Frame, question: Sequence[int], passage: Sequence[int]) -> EncodedRow:
        """The question, then the passage."""
        return frame.row([*question, *passage])

    def start(self, frame: Frame, question: int) -> int:
        """After the question."""
        return frame.start() + question


@dataclass(frozen=True, slots=True)
class QuestionFirst:
    """A question, and a passage's text without its title, as two texts. Source: Lee et al. 2019, §3, code release;
    Guu et al. 2020, §3.2 (eq 75).
    """

    question_length: int
    texts: int = 2

    def join_title(self, title: str, text: str) -> str:
        """The text."""
        return text

    def row(self, frame: Frame, question: Sequence[int], passage: Sequence[int]) -> EncodedRow:
        """The question, then the passage."""
        return frame.row(question, passage)

    def start(self, frame: Frame, question: int) -> int:
        """After the question and what is between both."""
        return frame.start(question)


class PassageSource(Protocol):
    """Passages, and a retriever that searches them for one reader: given to a task by the job that opened them."""

    @property
    def retriever(self) -> Retriever:
        """What gives questions vectors and finds passages."""

    @property
    def encoder(self) -> str:
        """SHA-256 of the weights that the passages' vectors are from."""

    def encode_questions(self, texts: Sequence[str]) -> Mapping[str, Ragged]:
        """Return what the retriever reads of questions, by the names that it has in a batch."""

    def find_answers(self, answers: Sequence[Sequence[str]]) -> Mapping[str, Ragged]:
        """Return where answers stand in passages, by the names that it has in a batch. Shapes: N rows each."""

    @property
    def mask(self) -> str | None:
        """The retriever's token for what is hidden; None where it has none."""

    def describe(self, place: int) -> dict[str, Any]:
        """Return what names a passage to a person: `id`, `title`, `text`, all of them empty for none."""

    def cut_span(self, place: int, first: int, last: int) -> tuple[int, int]:
        """Return the characters of a passage's text from the first to the last of some tokens of it."""

    def notes(self) -> Sequence[str]:
        """Return lines about the passages: how many, and what of them no row has room for."""


@runtime_checkable
class RetrievingTask(Protocol):
    """A task that reads retrieved passages."""

    @property
    def retrieval(self) -> Retrieval:
        """Where they are."""

    def layout(self, encoding: Encoding) -> PassageLayout:
        """Return how a passage is read next to a question."""

    def with_passages(self, source: PassageSource) -> Self:
        """Return the task with its passages."""


class ReadsPassages:
    """What every such task does with its passages, once a job opened them."""

    __slots__ = ()
    config: Any
    source: PassageSource | None

    @property
    def opened(self) -> PassageSource:
        """The passages."""
        assert self.source is not None, "jobs open the passages before they encode"
        return self.source

    def with_passages(self, source: PassageSource) -> Self:
        """Return the task with its passages, and the name of the weights that their vectors are from."""
        retrieval = self.config.retrieval.model_copy(update={"encoder": source.encoder})
        changed: Self = replace(cast(Any, self), source=source,
                                config=self.config.model_copy(update={"retrieval": retrieval}))
        return changed


@dataclass(frozen=True, slots=True)
class OpenQuestion(WrittenText):
    """A question, and the text that it was asked about where the file has one."""

    context: str | None = None


def read_open_questions(source: SourceFile, tally: Tally, settings: object, columns: tuple[Column, Column], *,
                        labelled: bool) -> Iterator[OpenQuestion]:
    """Yield questions with their answers; one without any is left out and counted.

    `columns`: of the question and of the answer, in files that are not in SQuAD's form.
    """
    if whole_document(source) is not None or "qas" in list_columns(source):
        for row, answers in read_raw_questions(source, None, labelled=labelled):
            if labelled and not answers:
                tally.update([UNANSWERED])
                continue
            texts = tuple(dict.fromkeys(text for text, _ in answers))
            yield OpenQuestion(row.example.place, row.example.name, row.text("question"), texts,
                               context=row.text("context"))
        return

    def read(row: Cells) -> OpenQuestion:
        return OpenQuestion(row.example.place, row.example.name, row.text(columns[0].role),
                            read_references(row, columns[1].role) if labelled else ())

    rows = read_cells(source, columns if labelled else columns[:1], requested_columns(settings, columns))
    yield from read_each(rows, read, source)


def encode_questions(texts: Sequence[str], encoding: Encoding, longest: int) -> tuple[Ragged, tuple[str, ...]]:
    """Encode questions as they are put next to passages, each cut to `longest` tokens, and say how many are cut."""
    rows = [encoding.tokenizer.published_ids(one.ids) for one in encoding.tokenizer.encodings([*texts], False)]
    lost = [len(row) - longest for row in rows if len(row) > longest]
    cut = (f"{len(lost):,} questions are cut to {longest} tokens next to a passage, {sum(lost):,} tokens",)
    return Ragged.of([row[:longest] for row in rows], encoding.tokenizer.pad_id or 0), cut if lost else ()


def answer_in_batches(predictor: Predictor, asked: EncodedExamples, batch: int, retriever: Retriever,
                      answer: Callable[[Batch], list[Answer]]) -> list[Answer]:
    """Return the answers to encoded questions, in order, `batch` of them at a time."""
    import torch

    from saucier.devices import autocast, move_batch

    found: dict[int, Answer] = {}
    predictor.model.eval()
    retriever.model.eval()
    device = next(predictor.model.parameters()).device
    retriever.model.to(device)
    for rows in order_by_length(asked, batch):
        read = move_batch(asked.batch(rows.units), device)
        with torch.no_grad(), autocast(predictor.dtype, device):
            answers = answer(read)
        found.update(zip(asked.example_numbers[rows.units].tolist(), answers, strict=True))
    return [found[number] for number in range(len(found))]


def list_evidence(source: PassageSource, found: Found, behind: Tensor | None, number: int) -> list[dict[str, Any]]:
    """Return the passages that are likeliest behind an answer, with p(z | x, y), where it is known, and p(z | x).

    Shapes: behind [B, K].
    """
    shares = {} if behind is None else {"probability": behind[number]}
    shares["prior"] = found.prior[number].exp()
    order = next(iter(shares.values())).argsort(descending=True, stable=True)[:SHOWN_EVIDENCE].tolist()
    return [{**source.describe(int(found.places[number, place])),
             **{name: round(float(share[place]), 4) for name, share in shares.items()}} for place in order]
