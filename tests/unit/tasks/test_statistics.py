"""Paired statistics against scipy, against hand-computed examples, and by their own promise: wrong one time in 20."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saucier.tasks.metrics.statistics import (
    cohen_dz,
    holm,
    paired_difference,
    randomization_test,
    seeds_for,
    two_levels,
)


def scores(seeds: int, units: int, *, gap: float = 0.0, seed_spread: float, unit_spread: float,
           random: np.random.Generator) -> np.ndarray:
    """Draw differences [S, N] with a spread between seeds, between units, and a little of their own."""
    return (gap + seed_spread * random.standard_normal((seeds, 1)) + unit_spread * random.standard_normal((1, units))
            + 0.1 * random.standard_normal((seeds, units)))


@pytest.mark.slow
@pytest.mark.parametrize(("seed_spread", "unit_spread"), [(0.2, 0.3), (0.2, 0.0), (0.0, 1.0)])
def test_equal_methods_are_told_apart_one_time_in_twenty(seed_spread: float, unit_spread: float) -> None:
    """Three seeds are enough for an honest 5 %: never much above, whichever level spreads more."""
    random, wrong, rounds = np.random.default_rng(0), 0, 600
    for number in range(rounds):
        gaps = scores(3, 40, seed_spread=seed_spread, unit_spread=unit_spread, random=random)
        found = paired_difference(gaps, np.zeros_like(gaps), np.ones(40), seed=number, draws=400)
        wrong += found.p <= 0.05
    assert wrong / rounds < 0.075


def test_a_level_of_seeds_alone_is_the_t_test() -> None:
    """Where units do not spread, the p-value is that of scipy's paired t-test."""
    stats = pytest.importorskip("scipy.stats")
    by_seed = np.array([0.031, 0.012, 0.044, 0.025])
    gaps = np.repeat(by_seed[:, None], 30, axis=1)
    found = paired_difference(gaps, np.zeros_like(gaps), np.ones(30), draws=200_000)
    expected = stats.ttest_1samp(by_seed, 0.0)
    assert found.p == pytest.approx(expected.pvalue, rel=0.05)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=0.001)
    assert found.effect == pytest.approx(expected.statistic / 2)  # t = d_z * sqrt(S)


def test_a_level_of_units_alone_is_the_bootstrap() -> None:
    """With one seed the interval is scipy's percentile bootstrap of the weighted mean."""
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(1)
    gaps, weights = random.normal(0.3, 1.0, 80), random.uniform(1, 3, 80)
    found = two_levels(gaps[None], weights, draws=20_000)
    expected = stats.bootstrap((gaps, weights), lambda x, w, axis: x.sum(axis) / w.sum(axis), paired=True,
                               method="percentile", n_resamples=20_000, rng=0).confidence_interval
    assert np.quantile(found, [0.025, 0.975]) == pytest.approx([expected.low, expected.high], abs=0.01)


def test_randomization_is_the_exact_test_where_that_can_be_counted() -> None:
    """Ten units have 1024 ways to change places."""
    gaps = np.array([0.5, 1.1, -0.2, 0.4, 0.9, -0.1, 0.3, 0.8, 0.2, -0.4])
    sums = [abs(np.dot(signs, gaps)) for signs in itertools.product((-1, 1), repeat=10)]
    exact = np.mean([total >= abs(gaps.sum()) - 1e-12 for total in sums])
    assert randomization_test(gaps, draws=100_000) == pytest.approx(exact, abs=0.003)


def test_randomization_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    gaps = np.random.default_rng(2).normal(0.2, 1.0, 60)
    expected = stats.permutation_test((gaps, np.zeros(60)), lambda a, b, axis: (a - b).mean(axis),
                                      permutation_type="samples", n_resamples=20_000, rng=0, vectorized=True)
    assert randomization_test(gaps, draws=20_000) == pytest.approx(expected.pvalue, abs=0.015)


def test_holm_by_hand() -> None:
    """0.01·4, 0.02·3, 0.03·2, 0.04·1, each at least as large as the one before."""
    assert holm([0.01, 0.04, 0.03, 0.02]) == pytest.approx((0.04, 0.06, 0.06, 0.06))
    assert holm([0.005, 0.9]) == pytest.approx((0.01, 0.9))
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_holm_lies_between_nothing_and_bonferroni(p_values: list[float]) -> None:
    """It never lowers a p-value, keeps their order, and is never stricter than multiplying all by their number."""
    found = holm(p_values)
    assert all(p <= adjusted <= min(1.0, p * len(p_values)) + 1e-12
               for p, adjusted in zip(p_values, found, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(found)[order]) >= 0)


def test_effect_size() -> None:
    """(1, 2, 3): mean 2, standard deviation 1."""
    assert cohen_dz(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    assert cohen_dz(np.array([1.0])) is None
    assert cohen_dz(np.array([1.0, 1.0])) is None


@pytest.mark.parametrize("effect", [0.8, 1.5, 3.0])
def test_so_many_seeds_find_it_four_times_in_five(effect: float) -> None:
    """The number of seeds that is advised has the power that is promised."""
    stats = pytest.importorskip("scipy.stats")
    needed = seeds_for(effect)
    samples = np.random.default_rng(3).normal(effect, 1.0, (4000, needed))
    assert np.mean(stats.ttest_1samp(samples, 0.0, axis=1).pvalue <= 0.05) > 0.74


def test_the_same_seed_gives_the_same_numbers() -> None:
    gaps = np.random.default_rng(4).normal(size=(3, 20))
    assert paired_difference(gaps, 0 * gaps, np.ones(20), draws=500) == paired_difference(gaps, 0 * gaps, np.ones(20),
                                                                                          draws=500)


def test_one_seed_proves_nothing_about_seeds() -> None:
    """Not even where every unit says the same; that these models differ is said by `units_p`."""
    found = paired_difference(np.ones((1, 30)), np.zeros((1, 30)), np.ones(30), draws=500)
    assert (found.p, found.effect, found.seeds_needed) == (1.0, None, None)
    assert found.units_p < 0.01
