"""Tasks on whole texts and pairs: one class, many labels, a number, or the relevance of a text to a query.

They are one task; what differs between them is a row of `LABEL_KINDS`. Letters: N texts, C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError, suggest_name
from saucier.tasks.definitions import Classification, ManyLabels, Ranking, Regression
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import (
    LABEL,
    PAIR,
    SCORE,
    TEXT,
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
    LabelledText,
    add_language_loss,
    default_pick,
    encode_in_form,
    extend_tokenizer,
    sort_labels,
)
from saucier.tasks.task import NEW_HEAD_DROPOUT, Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Objective
    from saucier.objectives.labels import LogitObjective

THRESHOLD = 0.5
"""The probability from which a label counts as predicted."""
MOST_RARE = 8
"""Classes of one row that are listed."""
MOST_SHOWN = 3
"""Classes whose probabilities are shown."""
QUERY = Column("text", ("query", "question", "text", "sentence1", "text1"))
CANDIDATE = Column("pair", ("passage", "sentence", "document", "candidate", "pair", "answer", "sentence2", "text2",
                            "text"))
Names = tuple[str, ...]
Rows = Sequence[LabelledText]


@dataclass(frozen=True, slots=True)
class LabelKind:
    """What is predicted of a text: how it is read, learned, predicted and scored."""

    column: Column
    """The column of the label."""
    read: Callable[[Cells, Any], Any]
    """Reads the label of a row, as the settings say. Raises `InputError` where it is missing or wrong."""
    objective: Callable[[Any], LogitObjective]
    """What is learned, by the settings."""
    targets: Callable[[Sequence[Any], Names], NDArray[Any]]
    """Labels as the objective reads them, given all names. Shapes: [N] or [N, C]."""
    predict: Callable[[Tensor, Names, Rows], list[Answer]]
    """Answers from the logits of all rows. Shapes: [N, C]."""
    scored_as: str
    lacking: Callable[[Sequence[Any]], str]
    """Says of training rows that have these values only why they teach nothing."""
    remedy: str
    """What to give then."""
    least: int = 2
    """Fewest values that training rows must have."""
    values: Callable[[Any], Sequence[Any]] = lambda label: (label,)
    """What a label holds: its names, where the model's outputs are labels."""
    outputs: Names = ()
    """What the model's outputs are called where they are no labels."""
    texts: tuple[Column, Column] = (TEXT, PAIR)
    """The columns of the text and its pair."""
    grouped: bool = False
    """Whether the rows of one text are scored together."""


class LabelledTextTask(Task, Protocol):
    """What tasks share that predict one thing of each text, or of each pair of texts, whatever the model says it by."""

    @property
    def kind(self) -> LabelKind:
        """What is predicted."""

    @property
    def labels(self) -> Names:
        """The names of the labels, where they have some."""
        return tuple(getattr(self.config, "labels", ()))

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[LabelledText]:
        """Yield texts with their labels."""
        columns = (*self.kind.texts, self.kind.column)

        def read(row: Cells) -> LabelledText:
            return LabelledText(row.example.place, row.example.name, row.text("text"),
                                row.text("pair") if "pair" in row.values else None,
                                self.kind.read(row, self.config) if labelled else None)

        rows = read_cells(source, columns if labelled else columns[:2], requested_columns(self.config, columns))
        return read_each(rows, read, source)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> LabelledText:
        """A text, or a text and its pair."""
        if len(texts) > 2:
            raise InputError(f"{len(texts)} texts", where="--text", remedy="give one, or two with ||| between")
        return LabelledText(example.place, example.name, texts[0], texts[1] if len(texts) > 1 else None, None)

    @property
    def scored_as(self) -> str:
        """As its kind of label."""
        return self.kind.scored_as

    def gold(self, example: LabelledText) -> Json:
        """The label; several in the order in which they are predicted."""
        if not isinstance(example.label, tuple):
            label: Json = example.label
            return label
        known = {label: place for place, label in enumerate(self.labels)}
        return sorted(example.label, key=lambda label: known.get(label, len(known)))

    def classes(self, example: LabelledText) -> Sequence[str]:
        """The labels that have names."""
        return () if example.label is None or self.kind.outputs else self.kind.values(example.label)


@dataclass(frozen=True, slots=True)
class TextTask(LabelledTextTask):
    """One thing of each text, by a head on the text's vector."""

    config: Any

    @property
    def kind(self) -> LabelKind:
        """By the settings."""
        return LABEL_KINDS[type(self.config)]

    def fit_labels(self, examples: Rows) -> Self:
        """Take the labels from the file, unless they are given; either way the file must teach something."""
        found = {value for one in examples if one.label is not None for value in self.kind.values(one.label)}
        if len(found) < self.kind.least:
            raise InputError(f"has {self.kind.lacking([*found])}", where=examples[0].place.file,
                             remedy=self.kind.remedy)
        learned = self if self.labels or self.kind.outputs else self.with_config(labels=sort_labels(found))
        return learned.weigh_classes(Counter(one.label for one in examples)) if isinstance(
            self.config, Classification) and self.config.class_weights else learned

    def weigh_classes(self, counts: Counter[str]) -> Self:
        """Give each class its weight: what is set, or by how often it comes. Raises `InputError` for an unknown class.

        Source of "balanced": King and Zeng 2001, §4; the mean weight over rows is 1.
        """
        given = self.config.class_weights
        if given == "balanced":
            rows = sum(counts[label] for label in self.labels)
            classes = sum(counts[label] > 0 for label in self.labels)
            return self.with_config(class_weights={label: rows / (classes * counts[label]) for label in self.labels
                                                   if counts[label]})
        unknown = [label for label in given if label not in self.labels]
        if unknown:
            raise InputError(f"no class {unknown[0]!r}", where="task.class_weights",
                             remedy=suggest_name(unknown[0], list(self.labels)))
        return self

    def training_notes(self, encoded: EncodedExamples) -> Iterator[str]:
        """Yield how much classes count, and which are too rare to be learned."""
        if not isinstance(self.config, Classification):
            return
        if isinstance(weights := self.config.class_weights, dict):
            yield "a row counts " + ", ".join(f"{weight:.3g} of {label}" for label, weight in weights.items())
        counts = np.bincount(encoded.unit_values["labels"], minlength=len(self.labels))
        if rare := [label for label, count in zip(self.labels, counts.tolist(), strict=True) if count == 1]:
            yield (f"warning: only one row of {', '.join(rare[:MOST_RARE])}{' …' * (len(rare) > MOST_RARE)}: "
                   "nothing general can be learned of a class from one row; add rows, or join it with another")

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """With GPT's tokens, where its form is chosen."""
        return extend_tokenizer(tokenizer, self.config.form)

    @property
    def required_head(self) -> RequiredHead:
        """An output for each label, or one number."""
        outputs = self.kind.outputs or self.labels

        def generic(body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
            return c.ClassificationHead(pick=self.config.pick or default_pick(body, tokenizer), classes=len(outputs),
                                        dropout=NEW_HEAD_DROPOUT)

        return RequiredHead("classification", generic, outputs, self.config.pick)

    def encode(self, examples: Rows, encoding: Encoding) -> EncodedExamples:
        """Encode the texts in their form; of a pair the longer text is cut first."""
        sequences, truncation = encode_in_form(examples, self.config.form, encoding)
        labels = [one.label for one in examples if one.label is not None]
        known = {"labels": self.kind.targets(labels, self.labels)} if len(labels) == len(examples) else {}
        return EncodedExamples(sequences, known, np.arange(len(examples)), truncation,
                               group=len(sequences["input_ids"].lengths) // len(examples))

    @property
    def objective(self) -> Objective:
        """That of the label, in GPT's form with the words of the rows."""
        return add_language_loss(self.kind.objective(self.config), self.config.form)

    def predict(self, predictor: Predictor, examples: Rows, encoded: EncodedExamples) -> list[Answer]:
        """The label, with probabilities where there are some."""
        return self.kind.predict(predictor.gather(encoded), self.labels, examples)

    def group_for_scoring(self, examples: Rows, values: Sequence[Any]) -> list[Any]:
        """The values of all rows of a query together, where they are ranked."""
        if not self.kind.grouped:
            return list(values)
        found: dict[str, list[Any]] = {}
        for one, value in zip(examples, values, strict=True):
            found.setdefault(one.text, []).append(value)
        return [*found.values()]

    def split_key(self, example: LabelledText) -> tuple[str, ...]:
        """A query's rows stay together."""
        return (example.text,) if self.kind.grouped else example.texts


def class_objective(config: Classification) -> LogitObjective:
    """Cross-entropy of one class, of rare classes perhaps more than of others."""
    from saucier.objectives.labels import ClassLabels

    weights = config.class_weights
    return ClassLabels(tuple(weights.get(label, 1.0) for label in config.labels) if isinstance(weights, dict) else None)


def label_objective(config: ManyLabels | Ranking) -> LogitObjective:
    """Cross-entropy of each label with its sigmoid."""
    from saucier.objectives.labels import MultiLabels

    return MultiLabels()


def number_objective(config: Regression) -> LogitObjective:
    """The squared error."""
    from saucier.objectives.labels import NumberLabels

    return NumberLabels()


def predict_classes(logits: Tensor, labels: Names, examples: Rows) -> list[Answer]:
    """Return the likeliest class, with the probabilities of the likeliest ones."""
    sure, which = logits.softmax(-1).topk(min(MOST_SHOWN, len(labels)))
    return [Answer(labels[order[0]], chances[0], {"probabilities": round_probabilities(
        {labels[number]: chance for number, chance in zip(order, chances, strict=True)})})
            for chances, order in zip(sure.tolist(), which.tolist(), strict=True)]


def round_probabilities(chances: dict[str, float]) -> dict[str, float]:
    """Return probabilities as they are shown."""
    return {name: round(chance, 4) for name, chance in chances.items()}


def read_label_set(row: Cells, config: ManyLabels) -> tuple[str, ...]:
    """Read a list of words, or words in one cell; none is a legal answer."""
    value = row.values.get("label")
    if value is None:
        return ()
    parts = value if isinstance(value, list) else str(value).split(config.separator)
    return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))


def predict_label_sets(logits: Tensor, labels: Names, examples: Rows) -> list[Answer]:
    """Return the labels that are likelier than not."""
    found = [dict(zip(labels, chances, strict=True)) for chances in logits.sigmoid().tolist()]
    return [Answer([name for name, chance in one.items() if chance > THRESHOLD],
                   min(max(chance, 1 - chance) for chance in one.values()),
                   {"probabilities": round_probabilities(one)}) for one in found]


def predict_relevance(logits: Tensor, labels: Names, examples: Rows) -> list[Answer]:
    """Return the probability that a text is relevant; its query is next to it, for `saucier score --group query`."""
    return [Answer(chance, None, {"query": one.text})
            for one, chance in zip(examples, logits.double().sigmoid().flatten().tolist(), strict=True)]


LABEL_KINDS: dict[type, LabelKind] = {
    Classification: LabelKind(
        LABEL, lambda row, config: row.word("label"), class_objective, number_labels, predict_classes, "classes",
        lambda found: f"one class only, {found[0]!r}" if found else "no classes", "give texts of two classes or more"),
    ManyLabels: LabelKind(
        LABEL, read_label_set, label_objective,
        lambda labels, names: np.array([[name in one for name in names] for one in labels], dtype=np.int64),
        predict_label_sets, "many_labels", lambda found: "no labels", "give texts that have some", least=1,
        values=lambda label: label),
    Regression: LabelKind(
        SCORE, lambda row, config: row.number("score"), number_objective,
        lambda labels, names: np.array(labels, dtype=np.float32),
        lambda logits, names, examples: [Answer(value) for value in logits.flatten().tolist()], "numbers",
        lambda found: "the same number in every row", "give texts with different scores", outputs=("score",)),
    Ranking: LabelKind(
        LABEL, lambda row, config: row.number("label"), label_objective,
        lambda labels, names: np.array([[label > 0] for label in labels], dtype=np.int64), predict_relevance,
        "rankings", lambda found: "no relevant text, or none that is not",
        "give rows of both, relevance above 0 and 0", values=lambda label: (label > 0,), outputs=("relevance",),
        texts=(QUERY, CANDIDATE), grouped=True)}
"""What is predicted, by the class of the task's settings. A new kind of label is a row here, and one in `build`."""
