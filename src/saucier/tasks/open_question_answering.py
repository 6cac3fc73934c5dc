"""Open-domain question answering by spans: a piece of a retrieved passage answers a question, retriever and reader
learned together from questions and answers alone.

Axes: B questions, K passages of each, L positions, W longest span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import OpenQuestionAnswering
from saucier.tasks.encoded_examples import EncodedExamples, Ragged
from saucier.tasks.examples import Example, Tally
from saucier.tasks.file_formats import ANSWERS, QUESTION
from saucier.tasks.open_questions import (
    SHOWN_EVIDENCE,
    OpenQuestion,
    PassageSource,
    QuestionFirst,
    ReadsPassages,
    answer_in_batches,
    encode_questions,
    read_open_questions,
)
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.tasks.written.definitions import Retrieval
from saucier.text.reading.sources import SourceFile

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch, Objective
    from saucier.objectives.latent_passages import Found

CANDIDATES = 4
"""Spans that are looked at for each answer that is told: several may be one text."""


@dataclass(frozen=True, slots=True)
class OpenQuestionAnsweringTask(ReadsPassages, Task):
    """A piece of a retrieved passage for each question."""

    config: OpenQuestionAnswering
    source: PassageSource | None = None
    """The passages; None: nobody opened them yet, which is enough for reading files."""
    scored_as = "spans"

    @property
    def required_head(self) -> RequiredHead:
        """One logit for each span."""
        return RequiredHead("joint_span", c.JointSpanHead(longest=self.config.longest_answer, dropout=NEW_HEAD_DROPOUT))

    @property
    def retrieval(self) -> Retrieval:
        """Where the passages are."""
        return self.config.retrieval

    def layout(self, encoding: Encoding) -> QuestionFirst:
        """A question, then a passage."""
        return QuestionFirst(self.config.question_length)

    @property
    def objective(self) -> Objective:
        """The marginal likelihood of all spans that are an answer, and the early loss."""
        from saucier.objectives.latent_spans import LatentSpans

        return LatentSpans(self.opened.retriever, self.config.early)

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[OpenQuestion]:
        """Yield questions with their answers; without any, a question is left out and counted."""
        return read_open_questions(source, tally, self.config, (QUESTION, ANSWERS), labelled=labelled)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> OpenQuestion:
        """A question from the command line. Raises `InputError` for more than that."""
        if len(texts) != 1 or not texts[0]:
            raise InputError("one question is needed", where="--text", remedy="its passages are looked for")
        return OpenQuestion(example.place, example.name, texts[0], ())

    def target_texts(self, example: OpenQuestion) -> tuple[str, ...]:
        """The answers, which are read in passages."""
        return example.references

    def surrounding_texts(self, example: OpenQuestion, body: c.Transformer) -> tuple[str, ...]:
        """The text that was asked about."""
        return () if example.context is None else (example.context,)

    def encode(self, examples: Sequence[OpenQuestion], encoding: Encoding) -> EncodedExamples:
        """Encode questions for reader and retriever, with the places of their answers in all passages."""
        texts = [one.text for one in examples]
        questions, notes = encode_questions(texts, encoding, self.config.question_length)
        sequences = {"input_ids": questions, **self.opened.encode_questions(texts)}
        if all(one.references for one in examples):
            found = self.opened.find_answers([one.references for one in examples])
            notes += tuple(self.describe_answers(found))
            sequences |= found
        return EncodedExamples(sequences, example_numbers=np.arange(len(examples)), notes=notes)

    def describe_answers(self, found: Mapping[str, Ragged]) -> Iterator[str]:
        """Say how many questions cannot be answered right, or cannot be learned from."""
        counts = found["answer_passages"].lengths
        if missing := int((counts == 0).sum()):
            yield f"{missing:,} of {len(counts):,} questions have an answer that is in no passage: they teach nothing"
        short = found["answer_ends"].values - found["answer_starts"].values < self.config.longest_answer
        fitting = np.add.reduceat(np.append(short, False), found["answer_passages"].offsets[:-1]) * (counts > 0)
        if long := int(((counts > 0) & (fitting == 0)).sum()):
            yield (f"{long:,} questions have answers of more than {self.config.longest_answer} tokens alone: only the "
                   "retriever learns of them (task.longest_answer)")

    def training_notes(self, encoded: EncodedExamples) -> Sequence[str]:
        """What is known of the passages."""
        return self.opened.notes()

    def predict(self, predictor: Predictor, examples: Sequence[OpenQuestion],
                encoded: EncodedExamples) -> list[Answer]:
        """Return the likeliest span for each question, with its evidence: the passages that it stands in."""
        return answer_in_batches(predictor, encoded, predictor.batch, self.opened.retriever,
                                 lambda batch: self.answer_batch(predictor, batch))

    def answer_batch(self, predictor: Predictor, batch: Batch) -> list[Answer]:
        """Find passages for some questions, and read them."""
        from saucier.objectives.latent_spans import score_spans

        retriever = self.opened.retriever
        found = retriever.find(batch)
        joined = retriever.read(batch, found)
        scores = score_spans(predictor.model, joined, found)
        chances = scores.flatten(1).log_softmax(-1).view_as(scores).cpu()
        starts = joined.starts.cpu()
        return [self.choose(chances[number], starts[number].tolist(), found, number) for number in range(len(scores))]

    def choose(self, chances: Tensor, starts: Sequence[int], found: Found, number: int) -> Answer:
        """Choose the likeliest span of a question's passages; the chances of spans of one text are told together.

        Shapes: chances [K, L, W], logarithms.
        """
        best, places = chances.flatten().topk(min(CANDIDATES * self.config.best, chances.numel()))
        passages = found.places[number].tolist()
        spans: dict[str, list[tuple[float, int, tuple[int, int]]]] = {}
        for chance, place in zip(best.exp().tolist(), places.tolist(), strict=True):
            rank, first, more = np.unravel_index(place, chances.shape)
            if chance > 0:
                first = int(first) - starts[rank]
                cut = self.opened.cut_span(passages[rank], first, first + int(more))
                text = self.opened.describe(passages[rank])["text"][slice(*cut)]
                spans.setdefault(text, []).append((chance, int(rank), cut))
        if not spans:  # passages without a token
            return Answer("", 0.0, {"best": [], "evidence": []})
        answer, held = next(iter(spans.items()))
        prior = found.prior[number].exp().tolist()
        evidence: dict[int, dict[str, Any]] = {}
        for chance, rank, cut in held:
            one = evidence.setdefault(rank, {**self.opened.describe(passages[rank]), "start": cut[0], "end": cut[1],
                                             "probability": 0.0, "prior": round(prior[rank], 4)})
            one["probability"] += chance
        shown = [{**one, "probability": round(one["probability"], 4)} for one in evidence.values()][:SHOWN_EVIDENCE]
        told = [{"text": text, "probability": round(sum(chance for chance, _, _ in some), 4)}
                for text, some in spans.items()][:self.config.best]
        return Answer(answer, sum(chance for chance, _, _ in held), {"best": told, "evidence": shown})

    def gold(self, example: OpenQuestion) -> Json | list[Json]:
        """All answers that are right."""
        return [*example.references] or None

    def format_prediction(self, example: OpenQuestion, said: Any) -> str:
        """The answers."""
        return " / ".join(dict.fromkeys(map(str, said if isinstance(said, list) else [said])))
