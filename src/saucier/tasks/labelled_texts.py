"""What tasks on whole texts share: reading a text or a pair, encoding it in the tokenizer's frame or in GPT's
input transformations, and the head that predicts its label.

Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §3.3. Axes: N texts, C
classes.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError
from saucier.objectives.base import Objective
from saucier.objectives.labels import LogitObjective
from saucier.objectives.prediction import AuxiliaryLanguageModelling
from saucier.tasks.definitions import BothOrders, TextForm, Texts, TokenizerFrame, Transformed
from saucier.tasks.encoded_examples import EncodedExamples, Ragged, Truncation
from saucier.tasks.examples import LABEL, PAIR, TEXT, Cells, Column, Example, Tally, read_cells, refuse_unknown
from saucier.tasks.task import Encoding, Json, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.tokenizer.model_inputs import LengthOptions, encode_rows, share_room
from saucier.text.tokenizer.tokenizer import Tokenizer

START, DELIMITER, EXTRACT, PADDING = "<start>", "<delimiter>", "<extract>", "<pad>"
"""The tokens that are added to the vocabulary; their vectors begin at random, as in the paper."""


def extend_tokenizer(tokenizer: Tokenizer, form: TextForm) -> Tokenizer:
    """Return a tokenizer with the tokens that a form needs, behind all others, and one for padding in any case."""
    match form:
        case TokenizerFrame():
            return add_padding_token(tokenizer)
        case Transformed() | BothOrders():
            return add_form_tokens(tokenizer)


def add_padding_token(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that knows a padding token: the end of a text where it has none of its own, as for GPT-2.

    A decoder's vector is taken at the last token that is no padding, so rows of different lengths need one.
    """
    if tokenizer.pad_id is not None or tokenizer.eos_id is None:
        return tokenizer
    return Tokenizer(tokenizer.backend, {**tokenizer.names, "pad": tokenizer.names["eos"]},
                     clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def add_form_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that has the three tokens, and one for padding."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    names = {"pad": PADDING} | tokenizer.names
    wanted = (START, DELIMITER, EXTRACT, names["pad"])
    backend.add_special_tokens([tokenizers.AddedToken(name, special=True) for name in wanted])
    return Tokenizer(backend, names, clean_up=tokenizer.clean_up, handling=tokenizer.handling)


def encode_transformed(rows: Sequence[Sequence[str]], encoding: Encoding) -> tuple[dict[str, Ragged], Truncation]:
    """Encode the texts of each row; of those that are too long the longest is cut first.

    Raises `InputError` for a model that is no decoder: its vector at the last token would not be of the whole row.
    """
    if not is_decoder(encoding.body):
        raise InputError("GPT's input transformations are read by a decoder", where="task.form",
                         remedy="begin with a model such as GPT, or leave task.form out")
    tokenizer = encoding.tokenizer
    start, delimiter, extract = (tokenizer.extra_ids[name] for name in (START, DELIMITER, EXTRACT))
    flat = iter(tokenizer.encodings([text for row in rows for text in row], False))
    found: list[list[int]] = []
    lost: list[int] = []
    for row in rows:
        texts = [tokenizer.published_ids(next(flat).ids) for _ in row]
        sizes = [len(ids) for ids in texts]
        kept = share_room(sizes, encoding.length - 1 - len(row), "longest_first")
        parts = [ids[:size] for ids, size in zip(texts, kept, strict=True)]
        found.append([start, *parts[0], *(token for part in parts[1:] for token in (delimiter, *part)), extract])
        lost.append(sum(sizes) - sum(kept))
    assert tokenizer.pad_id is not None, "with_tokens gives one"
    return {"input_ids": Ragged.of(found, tokenizer.pad_id)}, Truncation(sum(map(bool, lost)), sum(lost))


def is_decoder(body: c.Transformer) -> bool:
    """Say whether a body is a decoder alone."""
    return body.decoder is not None and body.encoder is None


def add_language_loss(task: LogitObjective, form: TextForm) -> Objective:
    """Return what is learned of a task in a form: the task alone, or the words of its rows too."""
    match form:
        case (Transformed(auxiliary=weight) | BothOrders(auxiliary=weight)) if weight:
            return AuxiliaryLanguageModelling(task, weight)
        case _:
            return task


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

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[LabelledText[T]]:
        """Yield texts with their labels."""
        return read_texts(source, self.config, (*self.read_from, self.target), self.label if labelled else None)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> LabelledText[T]:
        """A text, or a text and its pair."""
        return text_from_input(texts, example)

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """With GPT's tokens, where its form is asked for."""
        return extend_tokenizer(tokenizer, self.config.form)

    def encode(self, examples: Sequence[LabelledText[T]], encoding: Encoding) -> EncodedExamples:
        """Encode the texts in their form; of a pair the longer text is cut first."""
        wide, cut = encode_in_form(examples, self.config.form, encoding)
        labels = [one.label for one in examples if one.label is not None]
        flat = {"labels": self.targets(labels)} if len(labels) == len(examples) else {}
        return EncodedExamples(wide, flat, np.arange(len(examples)), cut,
                               group=len(wide["input_ids"].lengths) // len(examples))

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
    def required_head(self) -> RequiredHead:
        """A logit for each label."""
        return require_text_head(self.config, self.config.labels, len(self.config.labels))

    def with_labels(self, found: Iterable[str]) -> Any:
        """Return the task with the labels of the training rows, unless it has some."""
        labels = self.config.labels or sort_labels(found)
        return replace(cast(Any, self), config=self.config.model_copy(update={"labels": labels}))


def read_texts(source: SourceFile, settings: Any, columns: tuple[Column, Column, Column],
               label: Callable[[Cells], T] | None) -> Iterator[LabelledText[T]]:
    """Yield the texts of a file, from the columns that a task's settings name; `label` reads the last, None: nothing.

    Raises `InputError` for a file that lacks a column and for a row that cannot be used.
    """
    asked = {column.role: getattr(settings, column.role) for column in columns}
    for row in read_cells(source, columns if label else columns[:2], asked):
        yield LabelledText(row.example.place, row.example.name, row.text("text"),
                           row.text("pair") if "pair" in row.values else None, label(row) if label else None)


def text_from_input(texts: tuple[str, ...], example: Example) -> LabelledText[Any]:
    """Make an example of one text, or two, that a person typed. Raises `InputError` for more."""
    if len(texts) > 2:
        raise InputError(f"{len(texts)} texts", where="--text", remedy="give one, or two with ||| between")
    return LabelledText(example.place, example.name, texts[0], texts[1] if len(texts) > 1 else None, None)


def second_texts(examples: Sequence[LabelledText[Any]]) -> list[str] | None:
    """Return the second texts, or None where there are none. Raises `InputError` where some rows have one."""
    alone = [one for one in examples if one.pair is None]
    if alone and len(alone) < len(examples):
        raise InputError("has no second text, and others have one", where=str(alone[0].place),
                         remedy="give files with the same columns, or name the column with task.pair=COLUMN")
    return None if alone else [one.pair for one in examples if one.pair is not None]


def encode_in_form(examples: Sequence[LabelledText[Any]], form: TextForm,
                   encoding: Encoding) -> tuple[dict[str, Ragged], Truncation]:
    """Encode texts or pairs in a form. Raises `InputError` where both orders are asked for and there is no pair."""
    texts, pairs = [one.text for one in examples], second_texts(examples)
    both = [(text,) for text in texts] if pairs is None else list(zip(texts, pairs, strict=True))
    match form:
        case TokenizerFrame():
            return encode_texts(texts, pairs, encoding)
        case Transformed():
            return encode_transformed(both, encoding)
        case BothOrders():
            if pairs is None:
                raise InputError("has no second text, and both orders of two are read", where=str(examples[0].place),
                                 remedy="name the column with task.pair=COLUMN, or use task.form.kind=gpt")
            return encode_transformed([row for one in both for row in (one, one[::-1])], encoding)


def encode_texts(texts: Sequence[str], pairs: Sequence[str] | None, encoding: Encoding) -> tuple[dict[str, Ragged],
                                                                                                 Truncation]:
    """Encode texts, or pairs, and say what was cut."""
    tokenizer = encoding.tokenizer
    rows = encode_rows(tokenizer, texts, pairs, LengthOptions(encoding.length, "longest", "longest_first"))
    wide = {"input_ids": Ragged.of([row.ids for row in rows], tokenizer.pad_id or 0)}
    if encoding.has_segment_ids:
        wide["token_type_ids"] = Ragged.of([row.types for row in rows], 0)
    lost = [row.cut for row in rows if row.cut]
    return wide, Truncation(rows=len(lost), tokens=sum(lost))


def require_text_head(settings: Texts, labels: tuple[str, ...], outputs: int) -> RequiredHead:
    """Return the head for tasks on texts: `outputs` numbers of a text's vector."""
    def generic(body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
        return c.ClassificationHead(pick=settings.pick or default_pick(body, tokenizer), classes=outputs,
                                    dropout=DROPOUT)

    return RequiredHead("own" if settings.pick else "classification", generic, labels)


def default_pick(body: c.Transformer, tokenizer: Tokenizer) -> c.Pick:
    """Return where a body's vector for a text is taken: at the pooler, the last token of a decoder, else the mean."""
    if body.pooler is not None:
        return c.Pooled()
    if body.encoder is None:
        return c.LastToken(padding=tokenizer.pad_id)
    return c.Mean()


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort labels as a person does: numbers by their value."""
    def key(label: str) -> list[tuple[int, int, str]]:
        return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", label) if part]

    return tuple(sorted(set(labels), key=key))


class OneClass(Task[LabelledText[str]]):
    """What tasks share whose answer is one of several classes, however the model tells it."""

    __slots__ = ()

    def check_labels(self, examples: Sequence[LabelledText[str]]) -> None:
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
