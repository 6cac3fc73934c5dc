"""Is one method better than another? Paired differences over units (documents, rows) and over seeds; numpy alone.

Here a method's score is the sum of its values over the sum of the weights: bits over bytes, right answers over
questions. Scores of any other form are drawn in `tasks/metrics/metric.py`. Axes: S seeds, N units, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows.batch import make_generator

Floats = NDArray[np.float64]

DRAWS = 10_000
"""Random draws of a test or an interval; its smallest p-value is about one over this."""
PIECE = 2**21
"""Numbers that are drawn at a time."""
FEWEST_SEEDS = 3
"""With fewer the spread between seeds is a guess."""
NORMAL_975, NORMAL_80 = 1.959964, 0.841621
"""Quantiles of the normal distribution: of a two-sided test at 5 %, and of a power of 80 %."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How much the first of two methods scores above the second, and how sure that is."""

    value: float
    low: float
    """With `high` the 95 % interval over seeds and units; over units alone where there is one seed."""
    high: float
    p: float
    """Probability of a difference as large between equal methods, over seeds and units; 1 for one seed."""
    units_p: float
    """The same for these very models, on other text: approximate randomization over units."""
    effect: float | None
    """Cohen's d_z over seeds: the mean difference in units of its spread; None for one seed or no spread."""
    seeds: int

    @property
    def seeds_needed(self) -> int | None:
        """Seeds, more than there are, that find a difference of this size four times in five; None: unknown."""
        return max(self.seeds + 1, seeds_for(self.effect)) if self.effect else None


def paired_difference(first: Floats, second: Floats, weights: Floats, *, seed: int = 0,
                      draws: int = DRAWS) -> Difference:
    """Compare two methods that were scored with the same seeds on the same units.

    Shapes: first, second [S, N], weights [N].
    """
    gaps = first - second
    by_seed = gaps.sum(axis=1) / weights.sum()
    drawn = two_levels(gaps, weights, seed=seed, draws=draws)
    low, high = np.quantile(drawn, [0.025, 0.975])
    p = share_beyond_zero(drawn) if len(by_seed) > 1 else 1.0  # one seed says nothing of others
    return Difference(value=float(by_seed.mean()), low=float(low), high=float(high), p=p,
                      units_p=randomization_test(gaps.mean(axis=0), seed=seed, draws=draws), effect=cohen_dz(by_seed),
                      seeds=len(by_seed))


def two_levels(gaps: Floats, weights: Floats, *, seed: int = 0, draws: int = DRAWS) -> Floats:
    """Draw mean differences as other units and other seeds could have given them. Shapes: [S, N], [N] -> [R].

    Units are resampled, the same ones for all seeds, as every model was scored on the same text. Seeds are not: of
    three seeds a bootstrap covers 80 %, not 95 %. Their part is Student's t with S - 1 degrees of freedom instead.
    Source: Efron and Tibshirani 1993, §6 and §12.4; for two crossed levels Owen 2007, "The pigeonhole bootstrap".
    """
    by_seed = gaps.sum(axis=1) / weights.sum()
    units = gaps.mean(axis=0)
    drawn: Floats = np.concatenate([(counts @ units) / (counts @ weights)
                                    for counts in resampling_weights(len(units), seed=seed, draws=draws)])
    found: Floats = by_seed.mean() + (drawn - units.sum() / weights.sum())
    if len(by_seed) > 1:
        spread = by_seed.std(ddof=1) / math.sqrt(len(by_seed))
        found = found + spread * make_generator(seed, 1).standard_t(len(by_seed) - 1, size=draws)
    return found


def resampling_weights(count: int, *, seed: int, draws: int) -> Iterator[Floats]:
    """Draw units with replacement; yield, some draws at a time, how often each unit was drawn. Shapes: [R', N]."""
    random = make_generator(seed, 0)
    for start, stop in split_draws(draws, count):
        places = np.arange(stop - start)[:, None] * count
        units = random.integers(count, size=(stop - start, count)) + places
        yield np.bincount(units.ravel(), minlength=units.size).reshape(units.shape).astype(np.float64)


def exchange_signs(count: int, *, seed: int, draws: int) -> Iterator[Floats]:
    """Draw for which units two methods change places; yield 1 for those, some draws at a time. Shapes: [R', N]."""
    random = make_generator(seed, 2)
    for start, stop in split_draws(draws, count):
        yield random.integers(2, size=(stop - start, count), dtype=np.int8).astype(np.float64)


def split_draws(draws: int, count: int) -> list[tuple[int, int]]:
    """Cut draws of `count` numbers each into parts that fit into memory."""
    size = max(1, PIECE // count)
    return [(start, min(draws, start + size)) for start in range(0, draws, size)]


def share_beyond_zero(drawn: Floats) -> float:
    """Return the two-sided p-value of a drawn distribution: how much of it is beyond zero, twice."""
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return min(1.0, 2 * (beyond + 1) / (len(drawn) + 1))


def randomization_test(gaps: Floats, *, seed: int = 0, draws: int = DRAWS) -> float:
    """Return the p-value of approximate randomization: the two methods' answers change places at random, unit by unit.

    Shapes: gaps [N]. Source: Noreen 1989, "Computer-Intensive Methods for Testing Hypotheses", §2.
    """
    observed = abs(float(gaps.sum())) * (1 - 1e-12)
    beyond = sum(int((np.abs((2 * swaps - 1) @ gaps) >= observed).sum())
                 for swaps in exchange_signs(len(gaps), seed=seed, draws=draws))
    return (beyond + 1) / (draws + 1)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Correct p-values for their number: all that stay below 5 % are true but for one time in twenty.

    Source: Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    found, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda number: p_values[number])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        found[place] = largest
    return tuple(found)


def cohen_dz(differences: Floats) -> float | None:
    """Return the mean difference over its standard deviation. Shapes: [S].

    Source: Cohen 1988, §2.3.5; Lakens 2013, eq 6.
    """
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return float(differences.mean()) / spread if spread > 0 else None


def seeds_for(effect: float) -> int:
    """Return how many pairs find an effect of this size four times in five, at 5 %.

    Source: Guenther 1981, "Sample Size Formulas for Normal Theory T Tests", the correction for an unknown spread.
    """
    return max(FEWEST_SEEDS, math.ceil(((NORMAL_975 + NORMAL_80) / effect) ** 2 + NORMAL_975 ** 2 / 2))
