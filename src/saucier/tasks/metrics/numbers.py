"""Scores of numbers: Pearson's and Spearman's correlation and mean errors; and of the rankings that they make:
mean average precision and mean reciprocal rank.

An example is a query: its gold is the relevance of each candidate (above 0 is relevant), its prediction their
scores.
A query without any relevant candidate is no part of the mean. Among equal scores the irrelevant ones come first, so
that a constant gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from saucier.tasks.metrics.metric import Mean, Metric, Ranks, Sums, indicator, quotient, ratio, row_ranks
from saucier.tasks.metrics.statistics import Floats

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
