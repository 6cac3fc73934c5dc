"""Scores of labels: of classes, one of several or any number of them (accuracy, F1, Matthews' correlation); the strict
F1 of entities in rows of tags, whose type, first and last word must all be right; of numbers (Pearson's and Spearman's
correlation, mean errors) and of the rankings that they make (mean average precision, mean reciprocal rank). C classes.

F1 follows scikit-learn: a class that neither side names is no part of the mean, and 0 / 0 counts as 0.
An example of rankings is a query: its gold is the relevance of each candidate (above 0 is relevant), its prediction
their scores. A query without any relevant candidate is no part of the mean. Among equal scores the irrelevant ones come
first, so that a constant gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from saucier.tasks.metrics.metric import (
    Mean,
    Metric,
    Ranks,
    Sums,
    Value,
    indicator,
    many_hot,
    one_hot,
    quotient,
    ratio,
    row_ranks,
)
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


Count = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], Floats]
"""From golds, predictions and names to hits, predictions and golds of each name. Shapes: N, N, C -> [N, 3C]."""


def f1_metric(name: str, count: Count, names: Sequence[Any], value: Value, unit: str = "rows") -> Metric:
    """Score names that both sides give: `micro` adds the names up, `macro` averages their F1.

    `names` are all that either side may name, or those that matter. Source: van Rijsbergen 1979, §7.
    """
    return Metric(name, lambda golds, predictions: Sums(count(golds, predictions, names), value), unit)


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


def class_outcomes(golds: Sequence[Any], predictions: Sequence[Any], labels: Sequence[Any]) -> Floats:
    """Count where each row has one label."""
    return outcomes(one_hot(golds, labels), one_hot(predictions, labels))


def set_outcomes(golds: Sequence[Collection[Any]], predictions: Sequence[Collection[Any]],
                 labels: Sequence[Any]) -> Floats:
    """Count where each row has a set of labels."""
    return outcomes(many_hot(golds, labels), many_hot(predictions, labels))


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


TAG_ACCURACY = Metric("tag accuracy", lambda golds, predictions: Sums(np.array(
    [(sum(map(str.__eq__, gold, prediction)), len(gold)) for gold, prediction in zip(golds, predictions, strict=True)],
    dtype=np.float64).reshape(-1, 2), ratio), "sentences")
"""Share of words whose tag is right. Sentences are resampled, since words of one are not independent."""


PEARSON = Metric("Pearson", lambda golds, predictions: Sums(sum_moments(golds, predictions), pearson_of))
"""Correlation of golds and predictions, from sums of their squares and products; NaN where a side is constant."""


SPEARMAN = Metric("Spearman", lambda golds, predictions: Ranks(*(row_ranks(np.asarray([side], dtype=np.float64))[0]
                                                               for side in (golds, predictions))))
"""Correlation of the ranks, ties in the middle; every draw ranks again. Source: Spearman 1904.

Predictions are given as their ranks from the start, so that those of two methods can change places.
"""


ROOT_MEAN_SQUARED_ERROR = Metric(
    "RMSE", lambda golds, predictions: Sums(mean_powers(golds, predictions, 2), lambda sums: np.sqrt(ratio(sums))),
    better="lower")
"""Root of the mean squared error, in the golds' own unit."""


MEAN_ABSOLUTE_ERROR = Metric(
    "MAE", lambda golds, predictions: Sums(mean_powers(golds, predictions, 1), ratio), better="lower")
"""Mean distance of the predictions from the golds."""


def mean_powers(golds: Sequence[float], predictions: Sequence[float], power: int) -> Floats:
    """Give each error's power, and 1. Shapes: [N, 2]."""
    gaps = np.abs(np.asarray(golds, dtype=np.float64) - np.asarray(predictions, dtype=np.float64)) ** power
    return np.stack([gaps, np.ones(len(gaps))], axis=1)


def sum_moments(golds: Sequence[float], predictions: Sequence[float]) -> Floats:
    """Give 1, x, y, x², y² and xy of each example. Shapes: [N, 6].

    Both sides are taken about their means in units of their spreads, which changes no correlation: nothing cancels,
    and the answers of two methods that count in different units can change places.
    """
    x, y = (standardize(np.asarray(side, dtype=np.float64)) for side in (golds, predictions))
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)


def standardize(values: Floats) -> Floats:
    """Move and scale values so that their mean is 0 and their spread 1; zeros where all are equal. Shapes: [N]."""
    return quotient(values - values.mean(), np.full(len(values), values.std()))


def pearson_of(sums: Floats) -> Floats:
    """Give the correlation of sums of moments. Shapes: [R, 6] -> [R]."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spreads = [np.where(square * n - side * side > 1e-12 * np.abs(square * n), square * n - side * side, 0.0)
               for side, square in ((x, xx), (y, yy))]
    return quotient(n * xy - x * y, np.sqrt(spreads[0] * spreads[1]), math.nan)


MEAN_AVERAGE_PRECISION = Metric(
    "MAP", lambda golds, predictions: over_queries(average_precision, golds, predictions), "queries")
"""Mean over queries of the precision at each relevant candidate's rank. Source: Buckley and Voorhees 2000, §2."""


MEAN_RECIPROCAL_RANK = Metric(
    "MRR", lambda golds, predictions: over_queries(reciprocal_rank, golds, predictions), "queries")
"""Mean over queries of one over the first relevant candidate's rank. Source: Voorhees 1999, TREC-8, §3."""


RECIPROCAL_RANKS = Metric(
    "MRR", lambda golds, predictions: mean_per_query(1 / np.asarray(predictions, dtype=np.float64)), "queries")
"""The same, of ranks that are known already: one of a query."""


def cut_at(most: int) -> Metric:
    """Share of queries whose right candidate is among the first `most`."""
    return Metric(f"recall@{most}", lambda golds, predictions: mean_per_query(indicator(
        [rank <= most for rank in predictions])), "queries")


def mean_per_query(values: Floats) -> Mean:
    """Make the mean of a value for each query. Shapes: [N]."""
    return Mean(values, np.ones(len(values)))


def average_precision(ranks: Floats) -> float:
    """Average the precision at these ranks, which count from 1 and ascend."""
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def reciprocal_rank(ranks: Floats) -> float:
    """Give one over the first rank."""
    return float(1 / ranks[0]) if len(ranks) else 0.0


def relevant_ranks(gold: Sequence[float], prediction: Sequence[float]) -> Floats:
    """Give the ranks, from 1, of the relevant candidates."""
    relevant = np.asarray(gold, dtype=np.float64) > 0
    order = np.lexsort((relevant, -np.asarray(prediction, dtype=np.float64)))
    return np.flatnonzero(relevant[order]).astype(np.float64) + 1


def over_queries(score: Callable[[Floats], float], golds: Sequence[Sequence[float]],
                 predictions: Sequence[Sequence[float]]) -> Mean:
    """Average a score over the queries that have a relevant candidate."""
    ranks = [*map(relevant_ranks, golds, predictions)]
    return Mean(np.array([*map(score, ranks)]), indicator([len(one) > 0 for one in ranks]))
