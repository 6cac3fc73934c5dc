"""Scores of classes, one of several or any number of them: accuracy, F1, Matthews' correlation. C classes.

F1 follows scikit-learn: a class that neither side names is no part of the mean, and 0 / 0 counts as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from saucier.tasks.metrics.intervals import Mean, Sums, Value, quotient
from saucier.tasks.metrics.metric import Metric, indicator, many_hot, one_hot
from saucier.tasks.metrics.statistics import Floats

Side = Literal["precision", "recall", "F1"]


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class (or type of entity) by itself."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    """How often the gold names it."""
    predicted: int


def accuracy(unit: str = "rows") -> Metric:
    """Share of predictions that equal their gold."""
    return Metric("accuracy", lambda golds, predictions: Mean(
        indicator([gold == prediction for gold, prediction in zip(golds, predictions, strict=True)]),
        np.ones(len(golds))), unit)


def exact_sets() -> Metric:
    """Share of rows whose labels are all right, and no other is named."""
    return Metric("exact match", lambda golds, predictions: Mean(
        indicator([set(gold) == set(prediction) for gold, prediction in zip(golds, predictions, strict=True)]),
        np.ones(len(golds))))


def f1_of(label: Any) -> Metric:
    """F1 of one class, such as the positive one. Source: van Rijsbergen 1979, §7."""
    return Metric(f"F1 of {label}", lambda golds, predictions: Sums(
        outcomes(one_hot(golds, [label]), one_hot(predictions, [label])), micro("F1")))


def macro_f1(labels: Sequence[Any]) -> Metric:
    """Mean of the classes' F1, each weighing the same. `labels` are all that either side may name."""
    return Metric("macro F1", lambda golds, predictions: Sums(
        outcomes(one_hot(golds, labels), one_hot(predictions, labels)), macro))


def micro_f1_of_sets(labels: Sequence[Any]) -> Metric:
    """F1 of all labels of all rows together, where a row may have any number."""
    return Metric("micro F1", lambda golds, predictions: Sums(set_outcomes(golds, predictions, labels), micro("F1")))


def macro_f1_of_sets(labels: Sequence[Any]) -> Metric:
    """Mean of the labels' F1, where a row may have any number."""
    return Metric("macro F1", lambda golds, predictions: Sums(set_outcomes(golds, predictions, labels), macro))


def matthews(labels: Sequence[Any]) -> Metric:
    """Correlation of two classifications, for two classes or more; 0 where a side is constant.

    Source: Matthews 1975; for more classes Gorodkin 2004, "Comparing two K-category assignments", eq 8.
    """
    def measure(golds: Sequence[Any], predictions: Sequence[Any]) -> Sums:
        first, second = one_hot(golds, labels), one_hot(predictions, labels)
        right = (first * second).sum(axis=1, keepdims=True)
        return Sums(np.concatenate([right, first, second], axis=1), matthews_of)

    return Metric("Matthews", measure)


def matthews_of(sums: Floats) -> Floats:
    """Give the correlation of the numbers of right answers and of each class on both sides. Shapes: [R, 1 + 2C]."""
    right, first, second = sums[..., 0], *np.split(sums[..., 1:], 2, axis=-1)
    total = first.sum(axis=-1)
    spreads = [total * total - (side * side).sum(axis=-1) for side in (first, second)]
    return quotient(right * total - (first * second).sum(axis=-1), np.sqrt(spreads[0] * spreads[1]))


def outcomes(golds: Floats, predictions: Floats) -> Floats:
    """Put hits, predictions and golds of each class side by side. Shapes: [N, C] each -> [N, 3C]."""
    return np.concatenate([golds * predictions, predictions, golds], axis=1)


def set_outcomes(golds: Sequence[Collection[Any]], predictions: Sequence[Collection[Any]],
                 labels: Sequence[Any]) -> Floats:
    """Do the same for sets of labels."""
    places = {name: place for place, name in enumerate(labels)}
    return outcomes(many_hot([*map(list, golds)], places), many_hot([*map(list, predictions)], places))


def precision_recall_f1(sums: Floats) -> dict[Side, Floats]:
    """Give each class's scores. Shapes: [R, 3C] -> [R, C] each."""
    hits, predicted, gold = np.split(sums, 3, axis=-1)
    return {"precision": quotient(hits, predicted), "recall": quotient(hits, gold),
            "F1": quotient(2 * hits, predicted + gold)}


def micro(side: Side) -> Value:
    """Add the classes up first. Shapes: [R, 3C] -> [R]."""
    def value(sums: Floats) -> Floats:
        together = np.stack([part.sum(axis=-1) for part in np.split(sums, 3, axis=-1)], axis=-1)
        return precision_recall_f1(together)[side][..., 0]

    return value


def macro(sums: Floats) -> Floats:
    """Average the F1 of the classes that either side names in this draw. Shapes: [R, 3C] -> [R]."""
    _, predicted, gold = np.split(sums, 3, axis=-1)
    named = (predicted + gold > 0).sum(axis=-1)
    return quotient(precision_recall_f1(sums)["F1"].sum(axis=-1), named)


def class_scores(statistics: Floats, names: Sequence[Any]) -> tuple[ClassScore, ...]:
    """Tell each class's own scores. Shapes: [N, 3C], C."""
    sums = statistics.sum(axis=0)
    _, predicted, gold = np.split(sums, 3)
    precision, recall, f1 = (found.tolist() for found in precision_recall_f1(sums).values())
    return tuple(ClassScore(str(name), precision[place], recall[place], f1[place], int(gold[place]),
                            int(predicted[place])) for place, name in enumerate(names))
