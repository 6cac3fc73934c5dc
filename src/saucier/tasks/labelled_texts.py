"""What tasks on whole texts share: reading a text or a pair of texts, encoding it, the head that tells its label.

Axes: N texts, C classes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.config import Texts
from saucier.tasks.examples import LABEL, PAIR, TEXT, Cells, Column, Example, Tally, cells
from saucier.tasks.forms_config import BothOrders, TextForm, TokenizerFrame, Transformed
from saucier.tasks.labels import refuse_unknown
from saucier.tasks.sheet import Cut, Ragged, Sheet
from saucier.tasks.task import Encoding, Json, Task, Wanted
from saucier.tasks.transformed import spelled, transformed_rows
from saucier.text.sources import Source
from saucier.text.tensors import Fit, text_rows
from saucier.text.tokenizer import Tokenizer

DROPOUT = 0.1
"""On the vector that a new map reads. Source: Devlin et al. 2019, §4.1 (the usual rate)."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LabelledText(Example, Generic[T]):
    """A text, or a pair of texts, and what is to be told of it."""

    text: str
    pair: str | None
    label: T | None
    """None where it is not known."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, and its pair where there is one."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


class TextTask(Task[LabelledText[T]], Generic[T]):
    """A task that tells one thing of a whole text."""

    @property
    @abstractmethod
    def config(self) -> Any:
        """The task as data."""

    @property
    @abstractmethod
    def target(self) -> Column:
        """The column of what is to be told."""

    @property
    def read_from(self) -> tuple[Column, Column]:
        """The columns of the text and its pair."""
        return TEXT, PAIR

    @abstractmethod
    def label(self, row: Cells) -> T:
        """Read what is to be told of a row. Raises `InputError` where it is missing or wrong."""

    @abstractmethod
    def targets(self, labels: Sequence[T]) -> NDArray[Any]:
        """Return labels as the objective reads them. Shapes: [N] or [N, C]."""

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[LabelledText[T]]:
        """Yield texts with their labels."""
        return read_texts(source, self.config, (*self.read_from, self.target), self.label if labelled else None)

    def typed(self, texts: tuple[str, ...], example: Example) -> LabelledText[T]:
        """A text, or a text and its pair."""
        return typed_text(texts, example)

    def spelled(self, tokenizer: Tokenizer) -> Tokenizer:
        """With GPT's tokens, where its form is asked for."""
        return spelled(tokenizer, self.config.form)

    def sheet(self, examples: Sequence[LabelledText[T]], encoding: Encoding) -> Sheet:
        """Encode the texts in their form; of a pair the longer text is cut first."""
        wide, cut = formed(examples, self.config.form, encoding)
        labels = [one.label for one in examples if one.label is not None]
        flat = {"labels": self.targets(labels)} if len(labels) == len(examples) else {}
        return Sheet(wide, flat, np.arange(len(examples)), cut, group=len(wide["input_ids"].lengths) // len(examples))

    def texts(self, example: LabelledText[T]) -> tuple[str, ...]:
        """The text, and its pair."""
        return example.texts


class NamedLabels(TextTask[T]):
    """A text task whose model gives an output for each of the labels that its config names."""

    __slots__ = ()

    @property
    def target(self) -> Column:
        """The labels."""
        return LABEL

    @property
    def wanted(self) -> Wanted:
        """A logit for each label."""
        return text_head(self.config, self.config.labels, len(self.config.labels))

    def with_labels(self, found: Iterable[str]) -> Any:
        """Return the task with the labels of the training rows, unless it has some."""
        labels = self.config.labels or sorted_labels(found)
        return replace(cast(Any, self), config=self.config.model_copy(update={"labels": labels}))


def read_texts(source: Source, settings: Any, columns: tuple[Column, Column, Column],
               label: Callable[[Cells], T] | None) -> Iterator[LabelledText[T]]:
    """Yield the texts of a file, from the columns that a task's settings name; `label` reads the last, None: nothing.

    Raises `InputError` for a file that lacks a column and for a row that cannot be used.
    """
    asked = {column.role: getattr(settings, column.role) for column in columns}
    for row in cells(source, columns if label else columns[:2], asked):
        yield LabelledText(row.example.place, row.example.name, row.text("text"),
                           row.text("pair") if "pair" in row.values else None, label(row) if label else None)


def typed_text(texts: tuple[str, ...], example: Example) -> LabelledText[Any]:
    """Make an example of one text, or two, that a person typed. Raises `InputError` for more."""
    if len(texts) > 2:
        raise InputError(f"{len(texts)} texts", where="--text", remedy="give one, or two with ||| between")
    return LabelledText(example.place, example.name, texts[0], texts[1] if len(texts) > 1 else None, None)


def pairs_of(examples: Sequence[LabelledText[Any]]) -> list[str] | None:
    """Return the second texts, or None where there are none. Raises `InputError` where some rows have one."""
    alone = [one for one in examples if one.pair is None]
    if alone and len(alone) < len(examples):
        raise InputError("has no second text, and others have one", where=str(alone[0].place),
                         remedy="give files with the same columns, or name the column with task.pair=COLUMN")
    return None if alone else [one.pair for one in examples if one.pair is not None]


def formed(examples: Sequence[LabelledText[Any]], form: TextForm, encoding: Encoding) -> tuple[dict[str, Ragged], Cut]:
    """Encode texts or pairs in a form. Raises `InputError` where both orders are asked for and there is no pair."""
    texts, pairs = [one.text for one in examples], pairs_of(examples)
    both = [(text,) for text in texts] if pairs is None else list(zip(texts, pairs, strict=True))
    match form:
        case TokenizerFrame():
            return encoded_texts(texts, pairs, encoding)
        case Transformed():
            return transformed_rows(both, encoding)
        case BothOrders():
            if pairs is None:
                raise InputError("has no second text, and both orders of two are read", where=str(examples[0].place),
                                 remedy="name the column with task.pair=COLUMN, or use task.form.kind=gpt")
            return transformed_rows([row for one in both for row in (one, one[::-1])], encoding)


def encoded_texts(texts: Sequence[str], pairs: Sequence[str] | None, encoding: Encoding) -> tuple[dict[str, Ragged],
                                                                                                Cut]:
    """Encode texts, or pairs, and say what was cut."""
    tokenizer = encoding.tokenizer
    rows = text_rows(tokenizer, texts, pairs, Fit(encoding.length, "longest", "longest_first"))
    wide = {"input_ids": Ragged.of([row.ids for row in rows], tokenizer.pad_id or 0)}
    if encoding.tells_segments:
        wide["token_type_ids"] = Ragged.of([row.types for row in rows], 0)
    lost = [row.cut for row in rows if row.cut]
    return wide, Cut(rows=len(lost), tokens=sum(lost))


def text_head(settings: Texts, labels: tuple[str, ...], outputs: int) -> Wanted:
    """Return the head for tasks on texts: `outputs` numbers of a text's vector."""
    def generic(body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
        return c.ClassificationHead(pick=settings.pick or usual_pick(body, tokenizer), classes=outputs,
                                    dropout=DROPOUT)

    return Wanted("own" if settings.pick else "classification", generic, labels)


def usual_pick(body: c.Transformer, tokenizer: Tokenizer) -> c.Pick:
    """Return where a body's vector for a text is taken: at the pooler, the last token of a decoder, else the mean."""
    if body.pooler is not None:
        return c.Pooled()
    if body.encoder is None:
        return c.LastToken(padding=tokenizer.pad_id)
    return c.Mean()


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels as a person does: numbers by their value."""
    def key(label: str) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", label) if part]

    return tuple(sorted(set(labels), key=key))


class OneClass(Task[LabelledText[str]]):
    """What tasks share whose answer is one of several classes, however the model tells it."""

    __slots__ = ()

    def check(self, examples: Sequence[LabelledText[str]]) -> None:
        """Every class must be known."""
        known: tuple[str, ...] = getattr(self.config, "labels", ())
        refuse_unknown([(one, one.label) for one in examples if one.label is not None], known)

    @property
    def scored_as(self) -> str:
        """As classes."""
        return "classes"

    def gold(self, example: LabelledText[str]) -> Json:
        """The class."""
        return example.label

    def classes(self, example: LabelledText[str]) -> Sequence[str]:
        """The class."""
        return () if example.label is None else (example.label,)
