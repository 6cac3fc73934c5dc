"""Answers that are written from retrieved passages: what is read of a question, what is learned, and the evidence.

Axes: B questions, K passages of each, T tokens of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import EncodedExamples, Frame, Ragged, order_by_length
from saucier.tasks.examples import Cells, Example, Tally, read_cells, read_each, requested_columns
from saucier.tasks.file_formats import read_raw_questions, whole_document
from saucier.tasks.task import Answer, Encoding, Json, Predictor
from saucier.tasks.written.definitions import BehindSequence, BehindToken, Retrieval, RetrievalAugmented
from saucier.tasks.written.prompts import Prompt, encode_responses, is_encoder_decoder
from saucier.tasks.written.task import WritingTask, room_for_new_tokens
from saucier.tasks.written.text_to_text import INPUT, TARGET, WrittenText, read_references
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns
from saucier.text.tokenizer.model_inputs import EncodedRow

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch, Objective
    from saucier.objectives.latent_passages import Found, Marginal, Retriever

UNANSWERED = "questions without an answer left out"
SHOWN_EVIDENCE = 3
"""Passages that are shown with an answer."""


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

    @property
    def mask(self) -> str | None:
        """The retriever's token for what is hidden; None where it has none."""

    def describe(self, place: int) -> dict[str, Any]:
        """Return what names a passage to a person: `id`, `title`, `text`, all of them empty for none."""

    def notes(self) -> Sequence[str]:
        """Return lines about the passages: how many, and what of them no row has room for."""


class RetrievingTask(Protocol):
    """A task that reads retrieved passages."""

    @property
    def retrieval(self) -> Retrieval:
        """Where they are."""

    def layout(self, encoding: Encoding) -> PassageLayout:
        """Return how a passage is read next to a question."""

    def with_passages(self, source: PassageSource) -> Self:
        """Return the task with its passages."""


@dataclass(frozen=True, slots=True)
class PassageLayout:
    """How a reader's row is made of a passage and a question, as one text; each is encoded alone."""

    after_title: str
    question_length: int
    """The most tokens of a question, which have room in every row."""
    texts: ClassVar[int] = 1
    """Texts of a row, as the tokenizer frames them."""

    def row(self, frame: Frame, passage: Sequence[int], question: Sequence[int]) -> EncodedRow:
        """Put a passage before a question."""
        return frame.row([*passage, *question])


@dataclass(frozen=True, slots=True)
class QuestionFirst(PassageLayout):
    """A question and a passage as a pair of texts: [CLS] x [SEP] z [SEP] (eq 75). Where the question stands does not
    depend on the passage.
    """

    texts: ClassVar[int] = 2

    def row(self, frame: Frame, passage: Sequence[int], question: Sequence[int]) -> EncodedRow:
        """Put a question before a passage."""
        return frame.row(question, passage)


@dataclass(frozen=True, slots=True)
class OpenQuestion(WrittenText):
    """A question, and the text that it was asked about where the file has one."""

    context: str | None = None


@dataclass(frozen=True, slots=True)
class RetrievalAugmentedTask(WritingTask):
    """An answer written from retrieved passages."""

    config: RetrievalAugmented
    source: PassageSource | None = None
    """The passages; None: nobody opened them yet, which is enough for reading files."""

    @property
    def scored_as(self) -> str:
        """By exact match and F1, as pieces of a text are."""
        return "spans"

    @property
    def retrieval(self) -> Retrieval:
        """Where the passages are."""
        return self.config.retrieval

    def layout(self, encoding: Encoding) -> PassageLayout:
        """A passage, then the question. Raises `InputError` for a decoder alone."""
        if not is_encoder_decoder(encoding.body):
            raise InputError("passages are read by an encoder, once each, and the model is a decoder alone",
                             where="model", remedy="begin with an encoder-decoder, such as BART or T5")
        return PassageLayout(self.config.after_title, self.config.question_length)

    def with_passages(self, source: PassageSource) -> Self:
        """Return the task with its passages, and the name of the weights that their vectors are from."""
        retrieval = self.config.retrieval.model_copy(update={"encoder": source.encoder})
        return replace(self, source=source, config=self.config.model_copy(update={"retrieval": retrieval}))

    @property
    def opened(self) -> PassageSource:
        """The passages."""
        assert self.source is not None, "jobs open the passages before they encode"
        return self.source

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[OpenQuestion]:
        """Yield questions with their answers; without any, a question is left out and counted."""
        if whole_document(source) is not None or "qas" in list_columns(source):
            raw = read_raw_questions(source, None, labelled=labelled)
            for row, answers in raw:
                if labelled and not answers:
                    tally.update([UNANSWERED])
                    continue
                texts = tuple(dict.fromkeys(text for text, _ in answers))
                yield OpenQuestion(row.example.place, row.example.name, row.text("question"), texts,
                                   context=row.text("context"))
            return

        def read(row: Cells) -> OpenQuestion:
            return OpenQuestion(row.example.place, row.example.name, row.text("input"),
                                read_references(row, "target") if labelled else ())

        columns = (INPUT, TARGET)
        rows = read_cells(source, columns if labelled else columns[:1], requested_columns(self.config, columns))
        yield from read_each(rows, read, source)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> OpenQuestion:
        """A question from the command line."""
        return OpenQuestion(example.place, example.name, texts[0], ())

    def prompt(self, example: OpenQuestion, encoding: Encoding) -> Prompt:
        """The question, as it follows a passage."""
        return Prompt(self.config.before_question + self.config.prefix, example.text, framed=False)

    def responses(self, example: OpenQuestion) -> Sequence[str]:
        """The answers."""
        return example.references

    def gold(self, example: OpenQuestion) -> Json | list[Json]:
        """All answers that are right, as a list."""
        return [*example.references] or None

    def surrounding_texts(self, example: OpenQuestion, body: c.Transformer) -> tuple[str, ...]:
        """What stands around passage and question, and the text that was asked about."""
        around = (self.config.after_title, self.config.before_question, self.config.prefix)
        return around if example.context is None else (*around, example.context)

    def encode(self, examples: Sequence[OpenQuestion], encoding: Encoding) -> EncodedExamples:
        """Encode questions for reader and retriever, and answers; passages are put before a question when found."""
        self.layout(encoding)
        encoded = encode_responses(list(self.prompt_responses(examples, encoding)), encoding,
                                   self.config.writing.tokens)
        texts = [examples[number] for number in encoded.example_numbers.tolist()]
        whole = [self.prompt(one, encoding).whole for one in texts]
        rows = [encoding.tokenizer.published_ids(one.ids)[:self.config.question_length]
                for one in encoding.tokenizer.encodings(whole, False)]
        questions = {"input_ids": Ragged.of(rows, encoding.tokenizer.pad_id or 0)}
        return replace(encoded, sequences={**encoded.sequences, **questions,
                                           **self.opened.encode_questions([one.text for one in texts])})

    @property
    def objective(self) -> Objective:
        """The marginal likelihood of the answers."""
        from saucier.objectives.latent_passages import LatentPassages

        return LatentPassages(self.opened.retriever, self.marginal)

    @property
    def marginal(self) -> Marginal:
        """How passages share an answer."""
        from saucier.objectives.latent_passages import SequenceMarginal, TokenMarginal

        match self.config.marginal:
            case BehindSequence():
                return SequenceMarginal()
            case BehindToken():
                return TokenMarginal()

    def training_notes(self, encoded: EncodedExamples) -> Sequence[str]:
        """What is known of the passages."""
        return self.opened.notes()

    def predict(self, predictor: Predictor, examples: Sequence[OpenQuestion],
                encoded: EncodedExamples) -> list[Answer]:
        """Write an answer for each question, with its evidence: the passages that are likeliest behind it."""
        import torch

        from saucier.devices import autocast, move_batch

        encoding = predictor.encoding
        asked = self.encode([replace(one, references=()) for one in examples], encoding)
        options = self.options(encoding)
        options["max_new_tokens"] = room_for_new_tokens(self.config.writing.tokens or encoding.length, encoding.body, 1)
        found: dict[int, Answer] = {}
        predictor.model.eval()
        self.opened.retriever.model.eval()
        device = next(predictor.model.parameters()).device
        for rows in order_by_length(asked, self.config.writing.batch):
            batch = move_batch(asked.batch(rows.units), device)
            with torch.no_grad(), autocast(predictor.dtype, device):
                answers = self.answer_batch(predictor, batch, options)
            found.update(zip(asked.example_numbers[rows.units].tolist(), answers, strict=True))
        return [found[number] for number in range(len(examples))]

    def answer_batch(self, predictor: Predictor, batch: Batch, options: dict[str, Any]) -> list[Answer]:
        """Find passages for some questions, write from them, and say which of them are behind what was written."""
        from saucier.objectives.latent_passages import score_targets

        retriever, model, target = self.opened.retriever, predictor.model, predictor.encoding.tokenizer.target
        found = retriever.find(batch)
        inputs = retriever.read(batch, found)
        ids = self.write(model, inputs, found.prior, options)
        labels = mark_targets(ids, target.eos_id)
        logs = score_targets(model, inputs, {"decoder_input_ids": ids[:, :-1], "labels": labels})
        chance, behind = self.marginal(found.prior, logs, labels != IGNORED)
        answers = []
        for number, row in enumerate(ids[:, 1:].tolist()):
            evidence = list_evidence(self.opened, found, behind, number)
            answers.append(Answer(target.decode(row).strip(), float(chance[number].exp()), {"evidence": evidence}))
        return answers

    def write(self, model: Any, inputs: Batch, prior: Tensor, options: Mapping[str, Any]) -> Tensor:
        """Write one text for each question. Shapes: inputs [B * K, L], prior [B, K] -> [B, 1 + T]."""
        from saucier.generation.generate import generate
        from saucier.generation.hypotheses import generate_by_source

        sources = inputs["input_ids"], inputs.get("attention_mask")
        match self.config.marginal:
            case BehindSequence(scoring=scoring):
                return generate_by_source(model, *sources, mixture=prior, scoring=scoring, **options)
            case BehindToken():
                return generate(model, *sources, mixture=prior, **options)


def list_evidence(source: PassageSource, found: Found, behind: Tensor, number: int) -> list[dict[str, Any]]:
    """Return the passages that are likeliest behind an answer, with p(z | x, y) and p(z | x). Shapes: behind [B, K]."""
    order = behind[number].argsort(descending=True)[:SHOWN_EVIDENCE].tolist()
    return [{**source.describe(int(found.places[number, place])), "probability": round(float(behind[number, place]), 4),
             "prior": round(float(found.prior[number, place].exp()), 4)} for place in order]


def mark_targets(ids: Tensor, end: int | None) -> Tensor:
    """Return written tokens as targets, up to the first end. Shapes: ids [B, 1 + T], the start first -> [B, T]."""
    written = ids[:, 1:]
    ended = (written == (-1 if end is None else end)).long()
    return written.masked_fill(ended.cumsum(1) - ended > 0, IGNORED)
