"""Answers that are written from retrieved passages: what is read of a question, what is learned, and the evidence.

Axes: B questions, K passages of each, T tokens of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import Example, Tally
from saucier.tasks.open_questions import (
    OpenQuestion,
    PassageFirst,
    PassageSource,
    QuestionThenPassage,
    ReadsPassages,
    answer_in_batches,
    encode_questions,
    list_evidence,
    read_open_questions,
)
from saucier.tasks.task import Answer, Encoding, Json, Predictor
from saucier.tasks.written.definitions import BehindSequence, BehindToken, Fusion, Retrieval, RetrievalAugmented
from saucier.tasks.written.prompts import Prompt, encode_responses, is_encoder_decoder
from saucier.tasks.written.task import WritingTask, room_for_new_tokens
from saucier.tasks.written.text_to_text import INPUT, TARGET
from saucier.text.reading.sources import SourceFile

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch, Objective
    from saucier.objectives.latent_passages import Marginal


@dataclass(frozen=True, slots=True)
class RetrievalAugmentedTask(ReadsPassages, WritingTask):
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

    def layout(self, encoding: Encoding) -> PassageFirst:
        """A passage and the question, one after the other. Raises `InputError` for a decoder alone."""
        if not is_encoder_decoder(encoding.body):
            raise InputError("passages are read by an encoder, once each, and the model is a decoder alone",
                             where="model", remedy="begin with an encoder-decoder, such as BART or T5")
        order = PassageFirst if self.config.after_question is None else QuestionThenPassage
        return order(self.config.after_title, self.config.question_length)

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[OpenQuestion]:
        """Yield questions with their answers; without any, a question is left out and counted."""
        return read_open_questions(source, tally, self.config, (INPUT, TARGET), labelled=labelled)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> OpenQuestion:
        """A question from the command line."""
        return OpenQuestion(example.place, example.name, texts[0], ())

    def prompt(self, example: OpenQuestion, encoding: Encoding) -> Prompt:
        """The question, as it stands before a passage or after it."""
        first = self.config.after_question is not None
        return Prompt(("" if first else self.config.before_question) + self.config.prefix, example.text,
                      self.config.after_question or "", framed=False)

    def responses(self, example: OpenQuestion) -> Sequence[str]:
        """The answers."""
        return example.references

    def gold(self, example: OpenQuestion) -> Json | list[Json]:
        """All answers that are right, as a list."""
        return [*example.references] or None

    def surrounding_texts(self, example: OpenQuestion, body: c.Transformer) -> tuple[str, ...]:
        """What stands around passage and question, and the text that was asked about."""
        around = (self.config.after_title, self.config.after_question or self.config.before_question,
                  self.config.prefix)
        return around if example.context is None else (*around, example.context)

    def encode(self, examples: Sequence[OpenQuestion], encoding: Encoding) -> EncodedExamples:
        """Encode questions for reader and retriever, and answers; passages are put before a question when found."""
        self.layout(encoding)
        encoded = encode_responses(list(self.prompt_responses(examples, encoding)), encoding,
                                   self.config.writing.tokens)
        texts = [examples[number] for number in encoded.example_numbers.tolist()]
        questions, cut = encode_questions([self.prompt(one, encoding).whole for one in texts], encoding,
                                          self.config.question_length)
        return replace(encoded, notes=cut, sequences={**encoded.sequences, "input_ids": questions,
                                                      **self.opened.encode_questions([one.text for one in texts])})

    @property
    def objective(self) -> Objective:
        """The likelihood of the answers, marginal where passages are latent."""
        from saucier.objectives.latent_passages import FusedPassages, LatentPassages

        retriever, marginal = self.opened.retriever, self.marginal
        return FusedPassages(retriever) if marginal is None else LatentPassages(retriever, marginal)

    @property
    def marginal(self) -> Marginal | None:
        """How passages share an answer; None where they are not told apart."""
        from saucier.objectives.latent_passages import SequenceMarginal, TokenMarginal

        match self.config.marginal:
            case BehindSequence():
                return SequenceMarginal()
            case BehindToken():
                return TokenMarginal()
            case Fusion():
                return None

    def training_notes(self, encoded: EncodedExamples) -> Sequence[str]:
        """What is known of the passages."""
        return self.opened.notes()

    def predict(self, predictor: Predictor, examples: Sequence[OpenQuestion],
                encoded: EncodedExamples) -> list[Answer]:
        """Write an answer for each question, with its evidence: the passages that are likeliest behind it."""
        encoding = predictor.encoding
        asked = self.encode([replace(one, references=()) for one in examples], encoding)
        options = self.options(encoding)
        options["max_new_tokens"] = room_for_new_tokens(self.config.writing.tokens or encoding.length, encoding.body, 1)
        return answer_in_batches(predictor, asked, self.config.writing.batch, self.opened.retriever,
                                 lambda batch: self.answer_batch(predictor, batch, options))

    def answer_batch(self, predictor: Predictor, batch: Batch, options: dict[str, Any]) -> list[Answer]:
        """Find passages for some questions, write from them, and say which of them are behind what was written.

        Where passages are not told apart, those that the retriever has first are shown.
        """
        from saucier.objectives.latent_passages import score_joined_targets, score_targets

        retriever, model, target = self.opened.retriever, predictor.model, predictor.encoding.tokenizer.target
        found = retriever.find(batch)
        inputs = retriever.read(batch, found).inputs
        ids = self.write(model, inputs, found.prior, options)
        labels = mark_targets(ids, target.eos_id)
        written = {"decoder_input_ids": ids[:, :-1], "labels": labels}
        behind: Tensor | None = None
        if self.marginal is None:
            chance = score_joined_targets(model, inputs, written).sum(-1)
        else:
            chance, behind = self.marginal(found.prior, score_targets(model, inputs, written), labels != IGNORED)
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
            case Fusion():
                return generate(model, *sources, fusion=prior.shape[1], **options)


def mark_targets(ids: Tensor, end: int | None) -> Tensor:
    """Return written tokens as targets, up to the first end. Shapes: ids [B, 1 + T], the start first -> [B, T]."""
    written = ids[:, 1:]
    ended = (written == (-1 if end is None else end)).long()
    return written.masked_fill(ended.cumsum(1) - ended > 0, IGNORED)
