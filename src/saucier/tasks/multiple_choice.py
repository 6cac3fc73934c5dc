"""Multiple choice: which of several answers is right, each read with the question in a row of its own.

Letters: B batch, N choices.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import MultipleChoice, TokenizerFrame, Transformed
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import (
    Cells,
    Column,
    Example,
    Tally,
    number_labels,
    read_cells,
    read_each,
    requested_columns,
)
from saucier.tasks.labelled_texts import (
    add_language_loss,
    default_pick,
    encode_texts,
    encode_transformed,
    extend_tokenizer,
)
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from saucier.objectives.base import Objective

QUESTION = Column("question", ("question", "stem", "query", "sent2", "goal"), needed=False)
CONTEXT = Column("context", ("context", "article", "passage", "paragraph", "document", "ctx", "sent1", "premise"),
                 needed=False)
CHOICES = Column("choices", ("choices", "options", "endings"))
ANSWER = Column("answer", ("answer", "answerKey", "label", "answer_index", "correct"))
NUMBERED = re.compile(r"(ending|choice|option|answer|sol)_?([0-9]|[A-H])")
"""Columns that hold a choice each, as SWAG's `ending0`."""


@dataclass(frozen=True, slots=True)
class ChoiceQuestion(Example):
    """A question with choices."""

    context: str | None
    question: str | None
    choices: tuple[str, ...]
    names: tuple[str, ...]
    """What the file calls the choices."""
    answer: int | None
    """The number of the right one, from 0; None where it is not known."""

    @property
    def prompt(self) -> tuple[str, ...]:
        """What is read before the choice: the context, the question."""
        return tuple(text for text in (self.context, self.question) if text is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The context, the question, and all choices."""
        return (*self.prompt, *self.choices)


@dataclass(frozen=True, slots=True)
class MultipleChoiceTask(Task):
    """One of several choices for each question."""

    config: MultipleChoice
    scored_as = "choices"

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[ChoiceQuestion]:
        """Yield questions with a list of choices, or with a column for each choice."""
        requested = requested_columns(self.config, (QUESTION, CONTEXT, CHOICES, ANSWER))
        numbered = sorted(name for name in list_columns(source) if NUMBERED.fullmatch(name))
        single = [] if requested["choices"] or len(numbered) < 2 else [Column(name, (name,)) for name in numbered]
        expected = [QUESTION, CONTEXT, *(single or [CHOICES]), *([ANSWER] if labelled else [])]
        roles = [column.role for column in single]
        return read_each(read_cells(source, expected, requested),
                         lambda row: choice_question(row, roles, labelled=labelled), source)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> ChoiceQuestion:
        """A question and its choices."""
        if len(texts) < 3 or not all(texts):
            raise InputError("a question and its choices are needed", where="--text",
                             remedy="write QUESTION ||| FIRST CHOICE ||| SECOND CHOICE")
        return ChoiceQuestion(example.place, example.name, None, texts[0], texts[1:], default_names(len(texts) - 1),
                              None)

    def fit_labels(self, examples: Sequence[ChoiceQuestion]) -> Self:
        """Take the names of the choices from the file, unless they are given."""
        names = next((one.names for one in examples if one.names[0] not in string.digits), examples[0].names)
        return self.with_config(labels=self.config.labels or names)

    def check_labels(self, examples: Sequence[ChoiceQuestion], *, measured: bool = False) -> None:
        """Every question must have equally many choices."""
        check_choice_count(examples, len(self.config.labels))

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """With GPT's tokens, where its form is chosen."""
        return extend_tokenizer(tokenizer, self.config.form)

    @property
    def required_head(self) -> RequiredHead:
        """A logit for each choice; next to GPT's language head in its form."""
        def generic(body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
            return c.ChoiceHead(pick=default_pick(body, tokenizer), dropout=NEW_HEAD_DROPOUT)

        double = c.DoubleHead(choice=c.ChoiceHead(pick=c.PickVector(kind="chosen"), dropout=NEW_HEAD_DROPOUT))
        return RequiredHead("multiple_choice", generic) if isinstance(self.config.form, TokenizerFrame) else \
            RequiredHead("double", double)

    @property
    def objective(self) -> Objective:
        """Cross-entropy of the right one among the choices."""
        from saucier.objectives.labels import ClassLabels

        return add_language_loss(ClassLabels(), self.config.form)

    def encode(self, examples: Sequence[ChoiceQuestion], encoding: Encoding) -> EncodedExamples:
        """Encode each choice after its question; of both the longer one is cut first."""
        count = len(self.config.labels) or len(examples[0].choices)
        check_choice_count(examples, count)
        answers = [one.answer for one in examples if one.answer is not None]
        labels = {"labels": np.array(answers)} if len(answers) == len(examples) else {}
        rows = [(one.prompt, choice) for one in examples for choice in one.choices]
        match self.config.form:
            case TokenizerFrame():
                found, cut = encode_texts([before[0] for before, _ in rows],
                                          [" ".join([*before[1:], choice]) for before, choice in rows], encoding)
            case Transformed():
                found, cut = encode_transformed([(" ".join(before), choice) for before, choice in rows], encoding)
                labels["mc_token_ids"] = found["input_ids"].lengths.reshape(-1, count) - 1
        return EncodedExamples(found, labels, np.arange(len(examples)), cut, group=count)

    def predict(self, predictor: Predictor, examples: Sequence[ChoiceQuestion],
                encoded: EncodedExamples) -> list[Answer]:
        """The likeliest choice, with the probabilities of all."""
        found = []
        for one, chances in zip(examples, predictor.gather(encoded).softmax(-1).tolist(), strict=True):
            names, best = self.config.labels or one.names, max(range(len(chances)), key=chances.__getitem__)
            shown = {name: round(chance, 4) for name, chance in zip(names, chances, strict=True)}
            found.append(Answer(names[best], chances[best], {"choice": one.choices[best], "probabilities": shown}))
        return found

    def gold(self, example: ChoiceQuestion) -> Json:
        """The name of the right choice."""
        return None if example.answer is None else (self.config.labels or example.names)[example.answer]

    def split_key(self, example: ChoiceQuestion) -> tuple[str, ...]:
        """The context, where there is one: other questions about it would tell of it."""
        return example.texts if example.context is None else (example.context,)

    def classes(self, example: ChoiceQuestion) -> Sequence[str]:
        """The name of the right choice."""
        return () if example.answer is None else (str(self.gold(example)),)

    def format_prediction(self, example: ChoiceQuestion, said: Any) -> str:
        """The name of a choice, and the choice."""
        if said is None:
            return "not known"
        number = int(number_labels([said], self.config.labels or example.names)[0])
        return f"{said}: {example.choices[number]}"


def choice_question(row: Cells, single: Sequence[str], *, labelled: bool) -> ChoiceQuestion:
    """Read a question. Raises `InputError` for a row without a question, without choices, or without a right one."""
    where = str(row.example.place)
    context, question = (row.text(role) if row.values.get(role) not in (None, "") else None
                         for role in ("context", "question"))
    if context is None and question is None:
        raise InputError("has neither a question nor a context", where=where,
                         remedy="fill one, or say which columns: task.question=COLUMN task.context=COLUMN")
    names, choices = ((), tuple(row.text(role) for role in single)) if single \
        else choices_of(row.values.get("choices"), where)
    if len(choices) < 2:
        raise InputError(f"has {len(choices)} choices", where=where, remedy="give two or more")
    answer, names = find_answer(row.values.get("answer"), choices, names, where) if labelled else (None, names)
    return ChoiceQuestion(row.example.place, row.example.name, context, question, choices,
                          names or default_names(len(choices)), answer)


def choices_of(value: Any, where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names (none where they have none) and the texts of choices. Raises `InputError` for what is none."""
    match value:
        case {"text": list(texts), "label": list(names)} if len(texts) == len(names):
            return tuple(map(str, names)), refuse_empty(texts, where)
        case [{"text": _, "label": _}, *_]:
            return tuple(str(one.get("label")) for one in value), refuse_empty([one.get("text") for one in value],
                                                                               where)
        case list():
            return (), refuse_empty(value, where)
        case _:
            raise InputError(f"the choices are {type(value).__name__}", where=where,
                             remedy='write a list of texts, or {"label": [...], "text": [...]}')


def refuse_empty(texts: Sequence[Any], where: str) -> tuple[str, ...]:
    """Return texts. Raises `InputError` for an empty one."""
    if not all(isinstance(text, str | int | float) and str(text).strip() for text in texts):
        raise InputError("a choice is empty, or no text", where=where, remedy="fill it, or leave the row out")
    return tuple(map(str, texts))


def find_answer(value: Any, choices: Sequence[str], names: tuple[str, ...],
                where: str) -> tuple[int, tuple[str, ...]]:
    """Return the number of the right choice, and the names of all; they are letters where the answer is one.

    Raises `InputError` for an answer that names none of them.
    """
    said, letters = str(value).strip(), tuple(string.ascii_uppercase[:len(choices)])
    for known in (names, default_names(len(choices)), letters):
        if said in known:
            return known.index(said), known
    if said in choices:
        return choices.index(said), names or default_names(len(choices))
    raise InputError("has no answer" if value in (None, "") else
                     f"the answer {said[:40]!r} names none of its {len(choices)} choices", where=where,
                     remedy=f"write 0 to {len(choices) - 1}, A to {letters[-1]}, or the text of one")


def default_names(count: int) -> tuple[str, ...]:
    """Return the numbers from 0 as words."""
    return tuple(map(str, range(count)))


def check_choice_count(examples: Sequence[ChoiceQuestion], count: int) -> None:
    """Raise `InputError` for the first question with another number of choices."""
    wrong = [one for one in examples if len(one.choices) != count]
    if wrong:
        more = f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
        raise InputError(f"has {len(wrong[0].choices)} choices, and the others {count}{more}",
                         where=str(wrong[0].place), remedy="leave the row out, or train it apart")
