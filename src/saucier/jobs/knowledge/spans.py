"""Models that were fine-tuned for `question_answering` as parts of a search: as readers, and as writers of queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from saucier.errors import InputError
from saucier.jobs.finetuning.predict import PREDICTION_BATCH, open_task
from saucier.opened import OpenModel
from saucier.retrieval.answers import Piece
from saucier.retrieval.encoder import digest_encoder, digest_loaded
from saucier.retrieval.hybrid import Hit
from saucier.tasks.examples import Place
from saucier.tasks.file_formats import Question
from saucier.tasks.question_answering import QuestionAnsweringTask, Span
from saucier.tasks.task import Encoding, Predictor


@dataclass(frozen=True, slots=True)
class SpanReader:
    """Takes answers from texts; a piece's score is by how much it beats no answer."""

    opened: OpenModel

    @property
    def name(self) -> str:
        """By which its threshold is kept."""
        model = self.opened.model
        return f"spans {digest_encoder(model, self.opened.tokenizer, digest_loaded(model))[:16]}"

    def read(self, question: str, hits: Sequence[Hit]) -> list[Piece]:
        """Return the best piece of each hit, the best one first."""
        found = list[Piece]()
        spans = self.find_spans([question] * len(hits), [hit.text for hit in hits])
        for hit, (text, score, start) in zip(hits, spans, strict=True):
            if text:
                found.append(Piece(hit, start, start + len(text), score, {"reader": score}))
        return sorted(found, key=lambda piece: -piece.score)

    def write(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """Return the next query of each question: the best piece of its context; "" where there is none."""
        return [span.text for span in self.find_spans(questions, contexts)]

    def find_spans(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Span]:
        """Return the best piece of each context, its score by how much it beats no answer; "" where there is none."""
        task, length = self.opened.task, self.opened.length
        assert isinstance(task, QuestionAnsweringTask) and length is not None, "open_spans looked"
        if not questions:
            return []
        examples = [Question(Place("passage", number), str(number), question, context, None)
                    for number, (question, context) in enumerate(zip(questions, contexts, strict=True), start=1)]
        encoding = Encoding(self.opened.tokenizer, length, self.opened.model.config, None)
        encoded = task.encode(examples, encoding)
        predictor = Predictor(self.opened.model, encoding, PREDICTION_BATCH, "float32")
        found = list[Span]()
        for windows in task.read_windows(predictor, examples, encoded):
            none = min(score for _, score in windows)
            best = max((span for spans, _ in windows for span in spans), key=lambda one: one.score,
                       default=Span("", none))
            found.append(best._replace(score=best.score - none))
        return found


def open_spans(place: str) -> SpanReader:
    """Open a model of answers in texts. Raises `InputError` for one that answers no questions."""
    opened = open_task(place)
    if not isinstance(opened.task, QuestionAnsweringTask):
        raise InputError("takes no answers from texts", where=place,
                         remedy="fine-tune it first: saucier finetune question_answering --model ... --data ...")
    return SpanReader(opened)
