"""Span answers: the piece of a text that answers a question, searched in the logits of overlapping windows, or no
answer.

Letters: L length, U windows, W answer length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.labels import SpanLabels
from saucier.tasks.definitions import QuestionAnswering
from saucier.tasks.encoded_examples import EncodedExamples, Frame, Ragged, Truncation, assign_owners, split_windows
from saucier.tasks.examples import Example, Tally
from saucier.tasks.file_formats import Question, read_questions
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Ints
from saucier.text.tokenizer.tokenizer import Tokenizer

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Span(NamedTuple):
    """A piece of a row: its score, and its first and last token."""

    score: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A piece of a context with its score."""

    text: str
    score: float


def best_spans(starts: Floats, ends: Floats, longest: int, count: int) -> Iterator[Span]:
    """Yield the `count` best of all spans of at most `longest` tokens, the best first; of equal ones the first.

    Logits of places that no answer may have are -inf. Shapes: starts, ends [L].
    """
    length = len(starts)
    table = np.full((min(longest, length), length), -np.inf)
    for more in range(len(table)):
        table[more, :length - more] = starts[:length - more] + ends[more:]
    flat = table.T.ravel()
    enough = np.partition(flat, -count)[-count] if len(flat) > count else -np.inf
    places = np.flatnonzero((flat >= enough) & (flat > -np.inf))
    for place in places[np.argsort(-flat[places], kind="stable")][:count].tolist():
        first, more = divmod(place, len(table))
        yield Span(float(flat[place]), first, first + more)


def best_distinct(found: Sequence[ScoredText], count: int) -> list[ScoredText]:
    """Return the best answers, each text once, the best first; of equal ones the first."""
    best: dict[str, ScoredText] = {}
    for one in sorted(found, key=lambda one: -one.score):
        best.setdefault(one.text, one)
    return list(best.values())[:count]


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the softmax of scores."""
    if not scores:
        return []
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


NO_CHARACTER = -1
"""The characters of a place that is not of the context."""
NO_ANSWER = "no answer"
"""How "" is shown to a person."""


@dataclass(frozen=True, slots=True)
class Context:
    """The tokens of a context, and which characters each is made of. Shapes: all [N]."""

    ids: list[int]
    starts: Ints
    ends: Ints

    def tokens_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last token that hold some of these characters."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        return first, max(first, int(np.searchsorted(self.starts, end, side="left")) - 1)


@dataclass(frozen=True, slots=True)
class Window:
    """One row: a question and a part of its context."""

    ids: list[int]
    types: list[int]
    starts: list[int]
    """The first character of each place; `OUTSIDE` where it is not of the context."""
    ends: list[int]
    owned: list[int]
    """1 where an answer may begin: no other window has more context there."""
    null: int
    """The place whose logits say that there is no answer: the tokenizer's class token, or the first of the row."""
    answer: tuple[int, int] | None
    """The places of the answer, where all of it is in this window."""


@dataclass(frozen=True, slots=True)
class WindowMaker:
    """Makes the rows of a question."""

    frame: Frame
    length: int
    """Most tokens of a row."""
    step: int
    """Tokens between the beginnings of two windows."""
    null: int | None
    """The token whose logits say that there is no answer; None: the first of the row."""

    def __call__(self, one: Question, question: Sequence[int], text: Context) -> list[Window]:
        """Return the windows of a context. Raises `InputError` where there is no room for it."""
        room = self.frame.room(self.length, len(question), what="behind the question", where=str(one.place),
                               remedy="give more with training.length, or less with task.question_length")
        spans = split_windows(len(text.ids), room, min(self.step, room))
        owner = assign_owners(spans)
        return [self.window(question, text, span, owner == number, answer_tokens_in(one, text, span))
                for number, span in enumerate(spans)]

    def window(self, question: Sequence[int], text: Context, span: tuple[int, int], owned: Flags,
               answer: tuple[int, int] | None) -> Window:
        """Return one row."""
        part, begin = slice(*span), self.frame.start(len(question))
        row = self.frame.row(question, text.ids[part])
        size = span[1] - span[0]

        def placed(values: NDArray[Any], outside: int) -> list[int]:
            filled = np.full(len(row.ids), outside)
            filled[begin:begin + size] = values[part]
            return filled.tolist()

        null = row.ids.index(self.null) if self.null in row.ids else 0
        here = None if answer is None else (answer[0] - span[0] + begin, answer[1] - span[0] + begin)
        return Window(row.ids, row.types, placed(text.starts, NO_CHARACTER), placed(text.ends, NO_CHARACTER),
                      placed(owned, 0), null, here)


def answer_tokens_in(one: Question, text: Context, span: tuple[int, int]) -> tuple[int, int] | None:
    """Return the tokens of a question's first answer, where a part of the context holds all of them."""
    if not one.answers:
        return None
    first, last = text.tokens_of(one.answers[0].start, one.answers[0].start + len(one.answers[0].text))
    return (first, last) if span[0] <= first and last < span[1] else None


@dataclass(frozen=True, slots=True)
class QuestionAnsweringTask(Task):
    """A piece of a text for each question."""

    config: QuestionAnswering
    scored_as = "spans"
    required_head = RequiredHead("span", c.SpanHead(dropout=NEW_HEAD_DROPOUT))
    """Two logits at each token."""
    objective = SpanLabels()
    """Cross-entropy of both ends; of a window without the answer they are its first token."""

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Question]:
        """Yield the questions of a file in SQuAD's form, of paragraphs in lines, or of rows."""
        return read_questions(source, tally, self.config, labelled=labelled, drop=self.config.misplaced == "drop")

    def from_texts(self, texts: tuple[str, ...], example: Example) -> Question:
        """A question and a text."""
        if len(texts) != 2 or not all(texts):
            raise InputError("a question and its text are needed", where="--text", remedy="write QUESTION ||| TEXT")
        return Question(example.place, example.name, texts[0], texts[1], None)

    def fit_labels(self, examples: Sequence[Question]) -> QuestionAnsweringTask:
        """Learn that there may be no answer, where the training file has such questions."""
        if all(not one.answers for one in examples):
            raise InputError("has no answers", where=examples[0].place.file, remedy="give questions with answers")
        if self.config.no_answer is None and not all(one.answers for one in examples):
            return replace(self, config=self.config.model_copy(update={"no_answer": 0.0}))
        return self

    def encode(self, examples: Sequence[Question], encoding: Encoding) -> EncodedExamples:
        """Encode questions with every window of their contexts; an answer that no window holds whole is counted."""
        tokenizer, limit = encoding.tokenizer, self.config.question_length
        cutter = WindowMaker(Frame.of(tokenizer, examples[0].question, 2), encoding.length, self.config.stride,
                             tokenizer.cls_id)
        questions = [tokenizer.published_ids(one.ids)
                     for one in tokenizer.encodings([one.question for one in examples], False)]
        texts = encode_contexts(examples, tokenizer)
        rows = [cutter(one, ids[:limit], texts[one.context]) for one, ids in zip(examples, questions, strict=True)]
        found = [window for windows in rows for window in windows]
        lost = sum(bool(one.answers) and all(window.answer is None for window in windows)
                   for one, windows in zip(examples, rows, strict=True))
        cut = [len(ids) - limit for ids in questions if len(ids) > limit]
        known = all(one.answers is not None for one in examples)
        places = np.array([one.answer or (one.null, one.null) for one in found], dtype=np.int64)
        targets = {"start_positions": places[:, 0], "end_positions": places[:, 1]} if known else {}
        meaning = {name: Ragged.of([getattr(one, name) for one in found], NO_CHARACTER)
                   for name in ("starts", "ends", "owned")}
        return EncodedExamples(encoding.inputs(found), targets,
                               np.repeat(np.arange(len(rows)), [len(windows) for windows in rows]),
                               Truncation(len(cut), sum(cut), lost, "answers"),
                               meaning | {"null": Ragged.of([[one.null] for one in found], NO_CHARACTER)})

    def predict(self, predictor: Predictor, examples: Sequence[Question], encoded: EncodedExamples) -> list[Answer]:
        """The best piece of all windows of a question, or "" where none is likelier."""
        scored: list[tuple[int, list[ScoredText], float]] = []
        for units, _, output in predictor.outputs(encoded):
            assert output.start_logits is not None, "the head gives logits"
            assert output.end_logits is not None, "of both ends"
            both = [side.double().cpu().numpy() for side in (output.start_logits.float(), output.end_logits.float())]
            for row, unit in enumerate(units.tolist()):
                places = {name: values.row(unit) for name, values in encoded.position_data.items()}
                example = examples[int(encoded.example_numbers[unit])]
                scored.append((unit, *self.pieces(example, both[0][row], both[1][row], places)))
        grouped: list[list[tuple[list[ScoredText], float]]] = [[] for _ in examples]
        for unit, pieces, none in sorted(scored, key=lambda one: one[0]):
            grouped[int(encoded.example_numbers[unit])].append((pieces, none))
        return [self.answer([piece for pieces, _ in group for piece in pieces], min(none for _, none in group))
                for group in grouped]

    def pieces(self, example: Question, starts: Floats, ends: Floats,
               places: Mapping[str, Ints]) -> tuple[list[ScoredText], float]:
        """Return the best pieces of one window, and the score of there being none.

        Shapes: starts, ends [padded L], places [L] each, as in `Window`.
        """
        length, null = len(places["starts"]), int(places["null"][0])
        inside = places["starts"] != NO_CHARACTER
        spans = best_spans(np.where(inside & (places["owned"] == 1), starts[:length], -np.inf),
                           np.where(inside, ends[:length], -np.inf), self.config.longest_answer, 4 * self.config.best)
        found = [ScoredText(example.context[places["starts"][one.first]:places["ends"][one.last]].strip(), one.score)
                 for one in spans]
        return [one for one in found if one.text], float(starts[null] + ends[null])

    def answer(self, found: Sequence[ScoredText], none: float) -> Answer:
        """Choose among the pieces of all windows."""
        best, margin = best_distinct(found, self.config.best), self.config.no_answer
        silent = [] if margin is None else [ScoredText("", none)]
        ranked = sorted([*best, *silent], key=lambda one: -one.score)
        chances = softmax([one.score for one in ranked])
        by_text = {one.text: chance for one, chance in zip(ranked, chances, strict=True)}
        refused = not best or (margin is not None and none - best[0].score > margin)
        prediction = "" if refused else best[0].text
        return Answer(prediction, by_text.get(prediction, 1.0),
                      {"best": [{"text": text, "probability": round(chance, 4)} for text, chance in by_text.items()]})

    def gold(self, example: Question) -> Json | list[Json]:
        """All answers that are right; an empty list where there is none."""
        return None if example.answers is None else [one.text for one in example.answers]

    def split_key(self, example: Question) -> tuple[str, ...]:
        """The text: other questions about it would tell of it."""
        return (example.context,)

    def classes(self, example: Question) -> Sequence[str]:
        """Whether there is an answer."""
        return () if example.answers is None else ("answered" if example.answers else NO_ANSWER,)

    def format_prediction(self, example: Question, said: Any) -> str:
        """The answers."""
        found = said if isinstance(said, list) else [said] if said else []
        return " / ".join(dict.fromkeys(map(str, found))) or NO_ANSWER


def encode_contexts(examples: Sequence[Question], tokenizer: Tokenizer) -> dict[str, Context]:
    """Encode each context once, by its text. Raises `InputError` for one without tokens."""
    texts = list(dict.fromkeys(one.context for one in examples))
    found = {}
    for text, pieces in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
        if not pieces.ids:
            raise InputError("the tokenizer makes no token of the text", where="context", remedy="leave the row out")
        starts, ends = np.array(pieces.offsets, dtype=np.int64).T
        found[text] = Context(tokenizer.published_ids(pieces.ids), starts, ends)
    return found
