"""Scores of classes, one of several or any number of them (accuracy, F1, Matthews' correlation), and the strict
F1 of entities in rows of tags: the type, the first and the last word must all be right. C classes.

F1 follows scikit-learn: a class that neither side names is no part of the mean, and 0 / 0 counts as 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from saucier.tasks.metrics.metric import Mean, Metric, Sums, Value, indicator, many_hot, one_hot, quotient, ratio
from saucier.tasks.metrics.statistics import Floats
from saucier.tasks.tag_schemes import OUTSIDE, Reader, read_lenient, split_tag

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


EXACT_SETS = Metric("exact match", lambda golds, predictions: Mean(
    indicator([set(gold) == set(prediction) for gold, prediction in zip(golds, predictions, strict=True)]),
    np.ones(len(golds))))
"""Share of rows whose labels are all right, and no other is named."""


def f1_of(label: Any) -> Metric:
    """F1 of one class, such as the positive one. Source: van Rijsbergen 1979, §7."""
    return Metric(f"F1 of {label}", lambda golds, predictions: Sums(
        outcomes(one_hot(golds, [label]), one_hot(predictions, [label])), micro("F1")))


def macro_f1(labels: Sequence[Any]) -> Metric:
    """Mean of the classes' F1, each weighing the same. `labels` are all that either side may name."""
    return Metric("macro F1", lambda golds, predictions: Sums(
        outcomes(one_hot(golds, labels), one_hot(predictions, labels)), macro))


def of_sets(name: str, labels: Sequence[Any], value: Value) -> Metric:
    """Score rows that may have any number of labels, by F1 of all labels together, or the mean of the labels' F1."""
    return Metric(name, lambda golds, predictions: Sums(set_outcomes(golds, predictions, labels), value))


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


def entity_types(*sides: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """List the types that any side names."""
    return tuple(sorted({split_tag(tag)[1] for side in sides for tags in side for tag in tags if tag != OUTSIDE}))


def entity_statistics(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]], types: Sequence[str],
                      read: Reader = read_lenient) -> Floats:
    """Count hits, predicted and gold entities of each type in each sentence. Shapes: N, C types -> [N, 3C]."""
    places, found = {name: place for place, name in enumerate(types)}, np.zeros((len(golds), 3, len(types)))
    for row, (gold, prediction) in enumerate(zip(golds, predictions, strict=True)):
        theirs, ours = set(read(gold)), set(read(prediction))
        for side, entities in enumerate((ours & theirs, ours, theirs)):
            for entity in entities:
                found[row, side, places[entity.type]] += 1
    return found.reshape(len(golds), -1)


def entity_score(side: Side, types: Sequence[str], read: Reader = read_lenient, scheme: str = "") -> Metric:
    """Precision, recall or F1 of all entities together (micro). Sentences are resampled, not entities."""
    name = f"entity {side}" + f" ({scheme})" * bool(scheme)
    return Metric(name, lambda golds, predictions: Sums(entity_statistics(golds, predictions, types, read),
                                                        micro(side)), "sentences")


def entity_macro_f1(types: Sequence[str], read: Reader = read_lenient) -> Metric:
    """Mean of the types' F1."""
    return Metric("entity macro F1", lambda golds, predictions: Sums(
        entity_statistics(golds, predictions, types, read), macro), "sentences")


def tag_accuracy() -> Metric:
    """Share of words whose tag is right. Sentences are resampled, since words of one are not independent."""
    def measure(golds: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> Sums:
        rows = [(sum(map(str.__eq__, gold, prediction)), len(gold))
                for gold, prediction in zip(golds, predictions, strict=True)]
        return Sums(np.array(rows, dtype=np.float64).reshape(-1, 2), ratio)

    return Metric("tag accuracy", measure, "sentences")
