"""Span answers: the piece of a text that answers a question, searched in the logits of overlapping windows, or no
answer.

Letters: L length, U windows, W answer length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import QuestionAnswering
from saucier.tasks.encoded_examples import EncodedExamples, Frame, Ragged, Truncation, assign_owners, split_windows
from saucier.tasks.examples import Example, Tally
from saucier.tasks.file_formats import Question, read_questions
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Ints
from saucier.text.tokenizer.model_inputs import EncodedRow
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saucier.objectives.base import Objective

Floats = NDArray[np.float64]


def best_spans(starts: Floats, ends: Floats, longest: int, count: int) -> Iterator[tuple[float, int, int]]:
    """Yield the `count` best of all spans of at most `longest` tokens, the best first; of equal ones the first.

    A span is its score, its first and its last token. Logits of places that no answer may have are -inf.
    Shapes: starts, ends [L].
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
        yield float(flat[place]), first, first + more


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the softmax of scores; of none, none."""
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


NO_CHARACTER = -1
"""The characters of a place that is not of the context."""
NO_ANSWER = "no answer"
"""How "" is shown to a person."""


class Span(NamedTuple):
    """A piece of a text that may answer."""

    text: str
    score: float
    start: int = 0
    """Its first character."""


Found = tuple[list[Span], float]
"""The best pieces of a window, and the score of there being none."""


class Context(NamedTuple):
    """The tokens of a context, and which characters each is made of. Shapes: all [N]."""

    ids: list[int]
    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Window:
    """One row: a question and a part of its context."""

    row: EncodedRow
    starts: list[int]
    """The first character of each place; `NO_CHARACTER` where it is not of the context."""
    ends: list[int]
    owned: list[int]
    """1 where an answer may begin: no other window has more context there."""
    null: int
    """The place whose logits say that there is no answer: the tokenizer's class token, or the first of the row."""
    answer: tuple[int, int] | None
    """The places of the answer, where all of it is in this window."""


def make_windows(one: Question, question: Sequence[int], text: Context, frame: Frame, encoding: Encoding,
                 stride: int) -> list[Window]:
    """Return the rows of a question: itself and a part of its context. Raises `InputError` for no room for the latter.
    """
    room = frame.room(encoding.length, len(question), what="behind the question", where=str(one.place),
                      remedy="give more with training.length, or less with task.question_length")
    spans = split_windows(len(text.ids), room, min(stride, room))
    owner = assign_owners(spans)
    begin = frame.start(len(question))
    answer = answer_tokens(one, text)
    found = []
    for number, (start, stop) in enumerate(spans):
        row = frame.row(question, text.ids[start:stop])
        around = (begin, len(row.ids) - begin - (stop - start))
        starts, ends = (np.pad(values[start:stop], around, constant_values=NO_CHARACTER).tolist()
                        for values in (text.starts, text.ends))
        owned = np.pad((owner[start:stop] == number).astype(np.int64), around).tolist()
        null = row.ids.index(encoding.tokenizer.cls_id) if encoding.tokenizer.cls_id in row.ids else 0
        held = answer if answer and start <= answer[0] and answer[1] < stop else None
        places = None if held is None else (held[0] - start + begin, held[1] - start + begin)
        found.append(Window(row, starts, ends, owned, null, places))
    return found


def answer_tokens(one: Question, text: Context) -> tuple[int, int] | None:
    """Return the first and the last token of a question's first answer, where it has one."""
    if not one.answers:
        return None
    first = int(np.searchsorted(text.ends, one.answers[0].start, side="right"))
    end = int(np.searchsorted(text.starts, one.answers[0].start + len(one.answers[0].text), side="left"))
    return first, max(first, end - 1)


@dataclass(frozen=True, slots=True)
class QuestionAnsweringTask(Task):
    """A piece of a text for each question."""

    config: QuestionAnswering
    scored_as = "spans"
    required_head = RequiredHead("span", c.SpanHead(dropout=NEW_HEAD_DROPOUT))
    """Two logits at each token."""

    @property
    def objective(self) -> Objective:
        """Cross-entropy of both ends; of a window without the answer they are its first token."""
        from saucier.objectives.labels import SpanLabels

        return SpanLabels()

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Question]:
        """Yield the questions of a file in SQuAD's form, of paragraphs in lines, or of rows."""
        return read_questions(source, tally, self.config, labelled=labelled, drop=self.config.misplaced == "drop")

    def from_texts(self, texts: tuple[str, ...], example: Example) -> Question:
        """A question and a text."""
        if len(texts) != 2 or not all(texts):
            raise InputError("a question and its text are needed", where="--text", remedy="write QUESTION ||| TEXT")
        return Question(example.place, example.name, texts[0], texts[1], None)

    def fit_labels(self, examples: Sequence[Question]) -> Self:
        """Learn that there may be no answer, where the training file has such questions."""
        if all(not one.answers for one in examples):
            raise InputError("has no answers", where=examples[0].place.file, remedy="give questions with answers")
        if self.config.no_answer is None and not all(one.answers for one in examples):
            return self.with_config(no_answer=0.0)
        return self

    def encode(self, examples: Sequence[Question], encoding: Encoding) -> EncodedExamples:
        """Encode questions with every window of their contexts; an answer that no window holds whole is counted."""
        tokenizer, limit = encoding.tokenizer, self.config.question_length
        frame = Frame.of(tokenizer, examples[0].question, 2)
        questions = [tokenizer.published_ids(one.ids)
                     for one in tokenizer.encodings([one.question for one in examples], False)]
        texts = encode_contexts(examples, tokenizer)
        rows = [make_windows(one, ids[:limit], texts[one.context], frame, encoding, self.config.stride)
                for one, ids in zip(examples, questions, strict=True)]
        found = [window for windows in rows for window in windows]
        lost = sum(bool(one.answers) and all(window.answer is None for window in windows)
                   for one, windows in zip(examples, rows, strict=True))
        cut = [len(ids) - limit for ids in questions if len(ids) > limit]
        known = all(one.answers is not None for one in examples)
        places = np.array([one.answer or (one.null, one.null) for one in found], dtype=np.int64)
        targets = {"start_positions": places[:, 0], "end_positions": places[:, 1]} if known else {}
        meaning = {name: Ragged.of([getattr(one, name) for one in found], NO_CHARACTER)
                   for name in ("starts", "ends", "owned")}
        return EncodedExamples(encoding.inputs([one.row for one in found]), targets,
                               np.repeat(np.arange(len(rows)), [len(windows) for windows in rows]),
                               Truncation(len(cut), sum(cut), lost, "answers"),
                               meaning | {"null": Ragged.of([[one.null] for one in found], NO_CHARACTER)})

    def predict(self, predictor: Predictor, examples: Sequence[Question], encoded: EncodedExamples) -> list[Answer]:
        """The best piece of all windows of a question, or "" where none is likelier."""
        return [self.answer([piece for pieces, _ in group for piece in pieces], min(none for _, none in group))
                for group in self.read_windows(predictor, examples, encoded)]

    def read_windows(self, predictor: Predictor, examples: Sequence[Question],
                     encoded: EncodedExamples) -> list[list[Found]]:
        """Return what each window of each question has."""
        found: dict[int, Found] = {}
        for units, _, output in predictor.outputs(encoded):
            both = [getattr(output, name).float().double().cpu().numpy() for name in ("start_logits", "end_logits")]
            for row, unit in enumerate(units.tolist()):
                places = {name: values.row(unit) for name, values in encoded.position_data.items()}
                example = examples[int(encoded.example_numbers[unit])]
                found[unit] = self.pieces(example, both[0][row], both[1][row], places)
        windows: list[list[Found]] = [[] for _ in examples]
        for unit, example_number in enumerate(encoded.example_numbers.tolist()):
            windows[example_number].append(found[unit])
        return windows

    def pieces(self, example: Question, starts: Floats, ends: Floats,
               places: Mapping[str, Ints]) -> Found:
        """Return the best pieces of one window, and the score of there being none.

        Shapes: starts, ends [padded L], places [L] each, as in `Window`.
        """
        length, null = len(places["starts"]), int(places["null"][0])
        inside = places["starts"] != NO_CHARACTER
        spans = best_spans(np.where(inside & (places["owned"] == 1), starts[:length], -np.inf),
                           np.where(inside, ends[:length], -np.inf), self.config.longest_answer, 4 * self.config.best)
        cut = [(example.context[places["starts"][first]:places["ends"][last]], score, int(places["starts"][first]))
               for score, first, last in spans]
        found = [Span(text.strip(), score, start + len(text) - len(text.lstrip())) for text, score, start in cut]
        return [one for one in found if one.text], float(starts[null] + ends[null])

    def answer(self, found: Sequence[Span], none: float) -> Answer:
        """Choose among the pieces of all windows: each text once, with its best score; of equal ones the first."""
        best: dict[str, float] = {}
        for span in sorted(found, key=lambda one: -one.score):
            best.setdefault(span.text, span.score)
        margin, kept = self.config.no_answer, list(best.items())[:self.config.best]
        ranked = sorted([*kept, *([] if margin is None else [("", none)])], key=lambda one: -one[1])
        chances = softmax([score for _, score in ranked])
        by_text = {text: chance for (text, _), chance in zip(ranked, chances, strict=True)}
        refused = not kept or (margin is not None and none - kept[0][1] > margin)
        prediction = "" if refused else kept[0][0]
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
