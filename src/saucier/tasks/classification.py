"""Tasks on whole texts and pairs: one class, many labels, a number, or the relevance of a text to a query.

Letters: N texts, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives.base import Objective
from saucier.objectives.labels import ClassLabels as ClassesObjective
from saucier.objectives.labels import MultiLabels
from saucier.objectives.labels import MultiLabels as ManyLabelsObjective
from saucier.objectives.labels import NumberLabels as NumbersObjective
from saucier.tasks.definitions import Classification, ManyLabels, Ranking, Regression
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.examples import LABEL, SCORE, Cells, Column, number_labels, refuse_unknown
from saucier.tasks.labelled_texts import (
    LabelledText,
    NamedLabels,
    OneClass,
    TextTask,
    add_language_loss,
    require_text_head,
)
from saucier.tasks.task import Answer, Json, Predictor, RequiredHead

THRESHOLD = 0.5
"""The probability from which a label counts as said."""
MOST_SHOWN = 3
"""Classes whose probabilities are told."""


def round_probabilities(chances: dict[str, float]) -> dict[str, float]:
    """Return probabilities as they are told."""
    return {name: round(chance, 4) for name, chance in chances.items()}


@dataclass(frozen=True, slots=True)
class ClassificationTask(OneClass, NamedLabels[str]):
    """One class for each text."""

    config: Classification

    @property
    def objective(self) -> Objective:
        """Cross-entropy."""
        return add_language_loss(ClassesObjective(), self.config.form)

    def label(self, row: Cells) -> str:
        """Any word."""
        return row.word("label")

    def fit_labels(self, examples: Sequence[LabelledText[str]]) -> ClassificationTask:
        """Take the classes from the file, unless they are given; either way the file must have two of them."""
        found = sorted({one.label for one in examples if one.label is not None})
        if len(found) < 2:
            raise InputError(f"has one class only, {found[0]!r}" if found else "has no classes",
                             where=examples[0].place.file, remedy="give texts of two classes or more")
        learned: ClassificationTask = self.with_labels(found)
        return learned

    def targets(self, labels: Sequence[str]) -> NDArray[Any]:
        """Shapes: [N], numbers of classes."""
        return number_labels(labels, self.config.labels)

    def predict(self, predictor: Predictor, examples: Sequence[LabelledText[str]],
                encoded: EncodedExamples) -> list[Answer]:
        """The likeliest class, with the probabilities of the likeliest ones."""
        labels = self.config.labels
        sure, which = predictor.logits(encoded).softmax(-1).topk(min(MOST_SHOWN, len(labels)))
        return [Answer(labels[order[0]], chances[0], {"probabilities": round_probabilities(
            {labels[number]: chance for number, chance in zip(order, chances, strict=True)})})
                for chances, order in zip(sure.tolist(), which.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class MultiLabelTask(NamedLabels[tuple[str, ...]]):
    """Any number of labels for each text."""

    config: ManyLabels

    @property
    def objective(self) -> Objective:
        """A decision for each label."""
        return add_language_loss(ManyLabelsObjective(), self.config.form)

    def label(self, row: Cells) -> tuple[str, ...]:
        """A list of words, or words in one cell; none is a legal answer."""
        value = row.values.get("label")
        if value is None:
            return ()
        parts = value if isinstance(value, list) else str(value).split(self.config.separator)
        return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))

    def fit_labels(self, examples: Sequence[LabelledText[tuple[str, ...]]]) -> MultiLabelTask:
        """Take the labels from the file, unless they are given."""
        found = {label for one in examples for label in one.label or ()}
        if not found:
            raise InputError("has no labels", where=examples[0].place.file, remedy="give texts that have some")
        learned: MultiLabelTask = self.with_labels(found)
        return learned

    def check_labels(self, examples: Sequence[LabelledText[tuple[str, ...]]]) -> None:
        """Every label must be known."""
        refuse_unknown([(one, label) for one in examples for label in one.label or ()], self.config.labels)

    def targets(self, labels: Sequence[tuple[str, ...]]) -> NDArray[Any]:
        """Shapes: [N, C] of 0 and 1."""
        return np.array([[name in one for name in self.config.labels] for one in labels], dtype=np.int64)

    def predict(self, predictor: Predictor, examples: Sequence[LabelledText[tuple[str, ...]]],
                encoded: EncodedExamples) -> list[Answer]:
        """The labels that are likelier than not."""
        told = [dict(zip(self.config.labels, chances, strict=True))
                for chances in predictor.logits(encoded).sigmoid().tolist()]
        return [Answer([name for name, chance in one.items() if chance > THRESHOLD],
                       min(max(chance, 1 - chance) for chance in one.values()),
                       {"probabilities": round_probabilities(one)}) for one in told]

    @property
    def scored_as(self) -> str:
        """As many labels."""
        return "many_labels"

    def gold(self, example: LabelledText[tuple[str, ...]]) -> Json:
        """The labels, in the order in which they are predicted."""
        known = {label: place for place, label in enumerate(self.config.labels)}
        return None if example.label is None else sorted(example.label, key=lambda label: known.get(label, len(known)))

    def classes(self, example: LabelledText[tuple[str, ...]]) -> Sequence[str]:
        """The labels."""
        return example.label or ()


@dataclass(frozen=True, slots=True)
class RegressionTask(TextTask[float]):
    """A number for each text."""

    config: Regression

    @property
    def target(self) -> Column:
        """The number."""
        return SCORE

    @property
    def required_head(self) -> RequiredHead:
        """One output."""
        return require_text_head(self.config, ("score",), 1)

    @property
    def objective(self) -> Objective:
        """Squared error."""
        return add_language_loss(NumbersObjective(), self.config.form)

    def label(self, row: Cells) -> float:
        """Any number."""
        return row.number("score")

    def fit_labels(self, examples: Sequence[LabelledText[float]]) -> RegressionTask:
        """Numbers that are all equal teach nothing."""
        if len({one.label for one in examples}) < 2:
            raise InputError("has the same number in every row", where=examples[0].place.file,
                             remedy="give texts with different scores")
        return self

    def targets(self, labels: Sequence[float]) -> NDArray[Any]:
        """Shapes: [N]."""
        return np.array(labels, dtype=np.float32)

    def predict(self, predictor: Predictor, examples: Sequence[LabelledText[float]],
                encoded: EncodedExamples) -> list[Answer]:
        """The number itself."""
        return [Answer(value) for value in predictor.logits(encoded).flatten().tolist()]

    @property
    def scored_as(self) -> str:
        """As numbers."""
        return "numbers"

    def gold(self, example: LabelledText[float]) -> Json:
        """The number."""
        return example.label


QUERY = Column("text", ("query", "question", "text", "sentence1", "text1"))
CANDIDATE = Column("pair", ("passage", "sentence", "document", "candidate", "pair", "answer", "sentence2", "text2",
                            "text"))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RankingTask(TextTask[float]):
    """A number for each pair of a query and a text."""

    config: Ranking

    @property
    def read_from(self) -> tuple[Column, Column]:
        """The query, and a text that may answer it: both are needed."""
        return QUERY, CANDIDATE

    @property
    def target(self) -> Column:
        """The relevance."""
        return LABEL

    @property
    def required_head(self) -> RequiredHead:
        """One output."""
        return require_text_head(self.config, ("relevance",), 1)

    @property
    def objective(self) -> Objective:
        """Relevant or not."""
        return add_language_loss(MultiLabels(), self.config.form)

    def label(self, row: Cells) -> float:
        """Any number."""
        return row.number("label")

    def fit_labels(self, examples: Sequence[LabelledText[float]]) -> RankingTask:
        """Texts that are all relevant, or none, teach nothing."""
        if len({parse_relevance(one.label) for one in examples if one.label is not None}) < 2:
            raise InputError("has no relevant text, or none that is not", where=examples[0].place.file,
                             remedy="give rows of both, relevance above 0 and 0")
        return self

    def targets(self, labels: Sequence[float]) -> NDArray[Any]:
        """Shapes: [N, 1] of 0 and 1."""
        return np.array([[parse_relevance(one)] for one in labels], dtype=np.int64)

    def predict(self, predictor: Predictor, examples: Sequence[LabelledText[float]],
                encoded: EncodedExamples) -> list[Answer]:
        """The probability that a text is relevant; its query stands beside it, for `saucier score --group query`."""
        chances = predictor.logits(encoded).double().sigmoid().flatten().tolist()
        return [Answer(chance, None, {"query": one.text}) for one, chance in zip(examples, chances, strict=True)]

    @property
    def scored_as(self) -> str:
        """As rankings."""
        return "rankings"

    def group_for_scoring(self, examples: Sequence[LabelledText[float]], values: Sequence[T]) -> list[list[T]]:
        """The values of all rows of a query together."""
        found: dict[str, list[T]] = {}
        for one, value in zip(examples, values, strict=True):
            found.setdefault(one.text, []).append(value)
        return [*found.values()]

    def gold(self, example: LabelledText[float]) -> Json:
        """The relevance."""
        return example.label

    def split_key(self, example: LabelledText[float]) -> tuple[str, ...]:
        """A query's rows stay together."""
        return (example.text,)


def parse_relevance(label: float) -> bool:
    """Whether a number means that a text is relevant."""
    return label > 0
