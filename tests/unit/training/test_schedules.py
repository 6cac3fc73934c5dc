"""The schedules at points that can be computed by hand."""

from __future__ import annotations

import pytest

from saucier.training import hyperparameters as c
from saucier.training.optimizers import learning_rate_factor

ALL = [c.Cosine(warmup=10), c.Linear(warmup=10), c.Polynomial(warmup=10),
       c.InverseSquareRoot(warmup=10), c.Constant(warmup=10)]


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: schedule.kind)
def test_warm_up_is_linear_and_reaches_the_top(schedule: c.ScheduleConfig) -> None:
    assert [learning_rate_factor(schedule, step, 100) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])


def test_cosine_ends_at_its_final_share() -> None:
    schedule = c.Cosine(warmup=0, final=0.2)
    assert learning_rate_factor(schedule, 49, 100) == pytest.approx(0.6)
    assert learning_rate_factor(schedule, 99, 100) == pytest.approx(0.2)


def test_linear_falls_to_zero() -> None:
    assert [learning_rate_factor(c.Linear(), step, 4) for step in range(4)] == pytest.approx([0.75, 0.5, 0.25, 0.0])


def test_a_power_falls_fast_and_then_slowly() -> None:
    assert [learning_rate_factor(c.Polynomial(), step, 4)
            for step in range(4)] == pytest.approx([0.421875, 0.125, 0.015625, 0.0])
    same = learning_rate_factor(c.Linear(final=0.5), 1, 4)
    assert learning_rate_factor(c.Polynomial(power=1, final=0.5), 1, 4) == same == pytest.approx(0.75)


def test_inverse_square_root_is_the_papers_formula() -> None:
    dim, warmup = 512, 40
    for step in (1, 7, 40, 41, 1000):
        paper = dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate_factor(c.InverseSquareRoot(warmup=warmup), step - 1,
                                    10**6) * (dim * warmup) ** -0.5 == pytest.approx(paper)


def test_constant_cools_down_to_zero() -> None:
    schedule = c.Constant(cooldown=4)
    assert [learning_rate_factor(schedule, step, 10) for step in (0, 5, 6, 8, 9)] == pytest.approx([1, 1, 1, 0.5, 0.25])
