"""Scores of numbers: Pearson's and Spearman's correlation, and mean errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from saucier.tasks.metrics.intervals import Ranks, Sums, quotient, ratio, row_ranks
from saucier.tasks.metrics.metric import Metric
from saucier.tasks.metrics.statistics import Floats


def pearson() -> Metric:
    """Correlation of golds and predictions, from sums of their squares and products; NaN where a side is constant."""
    return Metric("Pearson", lambda golds, predictions: Sums(moments(golds, predictions), pearson_of))


def spearman() -> Metric:
    """Correlation of the ranks, ties in the middle; every draw ranks anew. Source: Spearman 1904.

    Predictions are told by their ranks from the start, so that those of two methods can change places.
    """
    return Metric("Spearman", lambda golds, predictions: Ranks(*(row_ranks(np.asarray([side], dtype=np.float64))[0]
                                                                 for side in (golds, predictions))))


def root_mean_squared_error() -> Metric:
    """Root of the mean squared error, in the golds' own unit."""
    return Metric("RMSE", lambda golds, predictions: Sums(errors(golds, predictions, 2), lambda sums: np.sqrt(ratio(
        sums))), better="lower")


def mean_absolute_error() -> Metric:
    """Mean distance of the predictions from the golds."""
    return Metric("MAE", lambda golds, predictions: Sums(errors(golds, predictions, 1), ratio), better="lower")


def errors(golds: Sequence[float], predictions: Sequence[float], power: int) -> Floats:
    """Give each error's power, and 1. Shapes: [N, 2]."""
    gaps = np.abs(np.asarray(golds, dtype=np.float64) - np.asarray(predictions, dtype=np.float64)) ** power
    return np.stack([gaps, np.ones(len(gaps))], axis=1)


def moments(golds: Sequence[float], predictions: Sequence[float]) -> Floats:
    """Give 1, x, y, x², y² and xy of each example. Shapes: [N, 6].

    Both sides are taken about their means in units of their spreads, which changes no correlation: nothing cancels,
    and the answers of two methods that count in different units can change places.
    """
    x, y = (standardized(np.asarray(side, dtype=np.float64)) for side in (golds, predictions))
    return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)


def standardized(values: Floats) -> Floats:
    """Move and scale values so that their mean is 0 and their spread 1; zeros where all are equal. Shapes: [N]."""
    return quotient(values - values.mean(), np.full(len(values), values.std()))


def pearson_of(sums: Floats) -> Floats:
    """Give the correlation of sums of moments. Shapes: [R, 6] -> [R]."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spreads = [np.where(square * n - side * side > 1e-12 * np.abs(square * n), square * n - side * side, 0.0)
               for side, square in ((x, xx), (y, yy))]
    return quotient(n * xy - x * y, np.sqrt(spreads[0] * spreads[1]), math.nan)
