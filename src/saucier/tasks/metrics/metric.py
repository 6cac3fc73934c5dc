"""What a metric is: a name, and how examples are measured, as sums, means or ranks over examples; with an
interval for every score, and for the difference of two methods.

A metric gives each example a few numbers, its sufficient statistics, and makes the score of their sums. To draw other
data is then to weigh the examples, and one product of matrices gives all draws of BLEU as it does of accuracy.
Axes: N examples, k statistics of an example, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np

from saucier.tasks.metrics.statistics import (
    NORMAL_975,
    Difference,
    Floats,
    exchange_signs,
    resampling_weights,
    share_beyond_zero,
    split_draws,
)

INTERVAL_DRAWS = 2_000
"""Draws of an interval: its ends then move by about a twentieth of its width from seed to seed."""
TEST_DRAWS = 10_000
"""Draws of a test between two methods."""

Value = Callable[[Floats], Floats]
"""From sums of statistics to scores. Shapes: [R, k] -> [R]; NaN where the score is not defined."""


class Measurement(Protocol):
    """What one metric found, example by example; draws of examples give draws of the score."""

    def __len__(self) -> int:
        """Count the examples that are resampled."""

    @property
    def count(self) -> int:
        """Count the examples that the score is about: as a rule all."""
        return len(self)

    def resampled(self, counts: Floats) -> Floats:
        """Give the score of data that hold each example so often. Shapes: [R, N] -> [R]."""

    def exchanged(self, other: Self, swaps: Floats) -> Floats:
        """Give the score with another method's predictions where `swaps` is 1. Shapes: [R, N] -> [R]."""


@dataclass(frozen=True, slots=True)
class Sums(Measurement):
    """A score that is a function of sums over examples: accuracy, F1, Matthews, Pearson, BLEU. Shapes: [N, k]."""

    statistics: Floats
    value: Value

    def __len__(self) -> int:
        return len(self.statistics)

    def resampled(self, counts: Floats) -> Floats:
        """See `Measurement`."""
        return self.value(counts @ self.statistics)

    def exchanged(self, other: Sums, swaps: Floats) -> Floats:
        """See `Measurement`."""
        return self.value(self.statistics.sum(axis=0) + swaps @ (other.statistics - self.statistics))


@dataclass(frozen=True, slots=True)
class Mean(Measurement):
    """The mean of a value over the examples that count: a share of right answers, where each is 0 or 1.

    Shapes: values, counted [N]; counted is 0 or 1.
    """

    values: Floats
    counted: Floats

    def __len__(self) -> int:
        return len(self.values)

    @property
    def count(self) -> int:
        """Examples that count."""
        return int(self.counted.sum())

    @property
    def sums(self) -> Sums:
        """The same as sums."""
        return Sums(np.stack([self.values * self.counted, self.counted], axis=1), ratio)

    def resampled(self, counts: Floats) -> Floats:
        """See `Measurement`."""
        return self.sums.resampled(counts)

    def exchanged(self, other: Mean, swaps: Floats) -> Floats:
        """See `Measurement`."""
        return self.sums.exchanged(other.sums, swaps)


@dataclass(frozen=True, slots=True)
class Ranks(Measurement):
    """Spearman's correlation, which is of no such form: a drawn example changes the ranks of all others.

    The ranks are made again in every draw, ties in the middle, so that nothing is taken for fixed that is not.
    Shapes: golds, predictions [N].
    """

    golds: Floats
    predictions: Floats

    def __len__(self) -> int:
        return len(self.golds)

    def resampled(self, counts: Floats) -> Floats:
        """See `Measurement`."""
        golds, predictions = (weighted_ranks(side, counts) for side in (self.golds, self.predictions))
        return weighted_correlation(golds, predictions, counts)

    def exchanged(self, other: Ranks, swaps: Floats) -> Floats:
        """See `Measurement`. Time: R sorts of N."""
        once = np.ones((len(swaps), len(self)))
        predictions = np.where(swaps.astype(bool), other.predictions, self.predictions)
        return weighted_correlation(weighted_ranks(self.golds, once), row_ranks(predictions), once)


def row_ranks(values: Floats) -> Floats:
    """Rank each row by itself, equal values in the middle of their places. Shapes: [R, N] -> [R, N]."""
    once = np.ones((1, values.shape[1]))
    return np.stack([weighted_ranks(row, once)[0] for row in values])


def weighted_ranks(values: Floats, counts: Floats) -> Floats:
    """Rank values that occur `counts` times each, equal ones in the middle of their places.

    Shapes: [N], [R, N] -> [R, N].
    """
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.add.reduceat(counts[:, order], starts, axis=1)
    before = np.cumsum(sizes, axis=1) - sizes
    return np.take(before + (sizes + 1) / 2, group, axis=1)


def weighted_correlation(first: Floats, second: Floats, counts: Floats) -> Floats:
    """Give Pearson's correlation, row by row; NaN where one side is constant. Shapes: [R, N] each -> [R]."""
    total = counts.sum(axis=1, keepdims=True)
    one, two = (side - (counts * side).sum(axis=1, keepdims=True) / total for side in (first, second))
    spread = (counts * one * one).sum(axis=1) * (counts * two * two).sum(axis=1)
    return quotient((counts * one * two).sum(axis=1), np.sqrt(spread), math.nan)


def full_value(measured: Measurement) -> float:
    """Give the score of the data as they are."""
    return float(measured.resampled(np.ones((1, len(measured))))[0])


def bootstrap(measured: Measurement, *, seed: int = 0, draws: int = INTERVAL_DRAWS) -> Floats:
    """Draw examples with replacement, and give each draw's score. Shapes: [R].

    Source: Efron and Tibshirani 1993, §6.
    """
    return np.concatenate([measured.resampled(counts)
                           for counts in resampling_weights(len(measured), seed=seed, draws=draws)])


def interval(measured: Measurement, *, seed: int = 0, draws: int = INTERVAL_DRAWS) -> tuple[float, float]:
    """Give the 95 % interval of the score: where it would be on other data of this size.

    A share's is Wilson's, which is honest where all are right; all others are percentiles of the bootstrap. Draws in
    which the score is not defined (a constant side of a correlation) are left out; NaN where all are.
    Source: Efron and Tibshirani 1993, §13.3; Wilson 1927, by Brown, Cai and DasGupta 2001, §3.1.1.
    """
    if isinstance(measured, Mean) and np.isin(measured.values[measured.counted > 0], (0.0, 1.0)).all():
        return wilson(float((measured.values * measured.counted).sum()), measured.count)
    return percentiles(bootstrap(measured, seed=seed, draws=draws))


def wilson(right: float, count: int) -> tuple[float, float]:
    """Give the 95 % interval of a share; NaN of nothing."""
    if not count:
        return math.nan, math.nan
    share, square = right / count, NORMAL_975 ** 2
    middle = (right + square / 2) / (count + square)
    half = NORMAL_975 * math.sqrt(count) / (count + square) * math.sqrt(share * (1 - share) + square / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def ratio(sums: Floats) -> Floats:
    """Divide the first sum by the second; NaN where that is 0. Shapes: [R, 2] -> [R]."""
    return quotient(sums[..., 0], sums[..., 1], math.nan)


def quotient(above: Floats, below: Floats, otherwise: float = 0.0) -> Floats:
    """Divide; `otherwise` where the divisor is 0. Shapes: any, equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below != 0, above / below, otherwise)


def percentiles(drawn: Floats) -> tuple[float, float]:
    """Give the middle 95 % of the defined draws."""
    defined = drawn[np.isfinite(drawn)]
    low, high = np.quantile(defined, [0.025, 0.975]) if len(defined) else (np.nan, np.nan)
    return float(low), float(high)


def compare_values(first: Measurement, second: Measurement, *, seed: int = 0, draws: int = TEST_DRAWS) -> Difference:
    """Compare two methods' answers to the same examples, which are resampled, or exchanged, together.

    `p` is two-sided, of the bootstrap; `units_p` of approximate randomization, which needs no distribution at all.
    Source: Noreen 1989, §2; for BLEU and alike Riezler and Maxwell 2005, "On Some Pitfalls in Automatic Evaluation".
    """
    drawn = bootstrap(first, seed=seed, draws=draws) - bootstrap(second, seed=seed, draws=draws)
    low, high = percentiles(drawn)
    value = full_value(first) - full_value(second)
    return Difference(value=value, low=low, high=high, p=share_beyond_zero(drawn[np.isfinite(drawn)]),
                      units_p=exchange_test(first, second, seed=seed, draws=draws), effect=None, seeds=1)


def exchange_test(first: Measurement, second: Measurement, *, seed: int = 0, draws: int = TEST_DRAWS) -> float:
    """Return the p-value of approximate randomization: predictions change places at random, example by example."""
    observed = abs(full_value(first) - full_value(second)) * (1 - 1e-12)
    beyond = sum(int((np.abs(first.exchanged(second, swaps) - second.exchanged(first, swaps)) >= observed).sum())
                 for swaps in exchange_signs(len(first), seed=seed, draws=draws))
    return (beyond + 1) / (draws + 1)


def influence(first: Measurement, second: Measurement) -> Floats:
    """Tell for each example how much of the first one's score its answer is worth, against the second's. Shapes: [N].

    Positive where the first method's answer is the better one, for a score of which more is better.
    """
    each = np.arange(len(first))
    return full_value(first) - np.concatenate([
        first.exchanged(second, (each[start:stop, None] == each).astype(np.float64))
        for start, stop in split_draws(len(first), len(first))])


Better = Literal["higher", "lower"]
Measure = Callable[[Sequence[Any], Sequence[Any]], Measurement]
"""From golds and predictions, one of each an example, to what was found."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A way to score predictions against golds."""

    name: str
    """As the field writes it, such as `macro F1`."""
    measure: Measure
    unit: str = "rows"
    """What one example is."""
    better: Better = "higher"


def indicator(values: Sequence[bool]) -> Floats:
    """Give 1 for each true value. Shapes: [N]."""
    return np.array(values, dtype=np.float64)


def one_hot(values: Sequence[Any], names: Sequence[Any]) -> Floats:
    """Tell by a 1 which name each value is; a row of zeros for a value that is none. Shapes: N, C -> [N, C]."""
    return many_hot([[value] for value in values], names)


def many_hot(sets: Sequence[Collection[Any]], names: Sequence[Any]) -> Floats:
    """Tell by 1s which names each set holds. Shapes: N, C -> [N, C]."""
    found = np.zeros((len(sets), len(names)))
    places = {name: place for place, name in enumerate(names)}
    for row, held in enumerate(sets):
        found[row, [places[name] for name in held if name in places]] = 1.0
    return found
