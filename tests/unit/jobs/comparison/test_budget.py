"""A budget becomes steps, a stretched schedule, or a width: held against naive counts."""

from __future__ import annotations

import pytest

from saucier.config import parameters
from saucier.cost.workload import Workload, make_workload, tokens_per_step, training_flops
from saucier.errors import InputError
from saucier.jobs.comparison.budget import count_step_tokens, spend_budget
from saucier.jobs.comparison.experiment import Flops, Parameters, Seconds, Tokens
from saucier.recipes import Recipe, recipe

SMALL = ("training.steps=100", "training.batch=4", "training.length=32", "model.length=32", "tokenizer.vocab=300")


def never(one: Recipe, work: Workload) -> float:
    raise AssertionError("no time is measured for this budget")


def gpt(*changes: str) -> Recipe:
    return recipe("gpt-nano", [*SMALL, *changes])


@pytest.mark.parametrize("name", ["gpt-nano", "bert-nano"])
def test_tokens_of_a_step_are_those_of_the_rows(name: str) -> None:
    """A language model's overlapping token is not counted twice."""
    one = recipe(name, SMALL)
    assert count_step_tokens(one, make_workload(one, one.vocab)) == 4 * 32
    changes = spend_budget(one, Tokens(amount=4 * 32 * 25 + 100), work=make_workload(one, one.vocab), pace=never)
    assert changes["training.steps"] == 25


def test_flops_buy_fewer_steps_of_a_larger_model() -> None:
    """Steps times our count of a step never exceed the budget, by less than one step."""
    for one in (gpt("model.dim=32", "model.heads=2"), gpt("model.dim=64", "model.heads=2")):
        each = training_flops(one, one.vocab, tokens_per_step(one, make_workload(one, one.vocab)))
        steps = spend_budget(one, Flops(amount=1e10), work=make_workload(one, one.vocab), pace=never)["training.steps"]
        assert steps * each <= 1e10 < (steps + 1) * each


def test_the_schedule_is_stretched_to_the_steps() -> None:
    """Warm-up and cool-down keep their share."""
    one = gpt("training.schedule.kind=constant", "training.schedule.warmup=10", "training.schedule.cooldown=30")
    changes = spend_budget(one, Tokens(amount=50 * 128), work=make_workload(one, 300), pace=never)
    assert changes == {"training.steps": 50, "training.schedule.warmup": 5, "training.schedule.cooldown": 15}


def test_seconds_are_measured_and_end_the_run() -> None:
    """There are a quarter more steps than foreseen, so that a quicker run does not end before its time."""
    warm = gpt("training.schedule.warmup=10", "training.steps=40")
    changes = spend_budget(warm, Seconds(amount=20), work=make_workload(warm, 300), pace=lambda one, work: 0.25)
    assert changes["training.steps"] == 100
    assert changes["training.schedule.warmup"] == 20
    assert changes["training.seconds"] == 20


@pytest.mark.parametrize("name", ["gpt-nano", "llama-nano", "t5-nano", "bert-nano"])
@pytest.mark.parametrize("amount", [3e5, 2e6])
def test_no_other_width_is_nearer_to_the_parameters(name: str, amount: float) -> None:
    """Both neighbours of the width that is chosen are farther away."""
    one = recipe(name, ["tokenizer.vocab=300"])
    chosen = spend_budget(one, Parameters(amount=amount), work=make_workload(one, 300), pace=never)
    unit = 2 * one.blueprint.heads  # type: ignore[union-attr]
    dim = chosen["model.dim"]

    def miss(width: int) -> float:
        scaled = {key.removeprefix("model."): round(value * width / dim) for key, value in chosen.items()}
        changed = recipe(name, ["tokenizer.vocab=300", *(f"model.{key}={value}" for key, value in scaled.items())])
        return abs(parameters(changed.model) - amount)

    assert dim % unit == 0
    assert miss(dim) <= min(miss(dim - unit) if dim > unit else 1e9, miss(dim + unit))


def test_a_budget_below_one_step_names_what_a_step_takes() -> None:
    with pytest.raises(InputError, match="100 tokens do not pay one step of gpt-nano, which takes 128"):
        spend_budget(gpt(), Tokens(amount=100), work=make_workload(gpt(), 300), pace=never)


def test_parameters_that_no_width_gives_are_refused() -> None:
    with pytest.raises(InputError, match="parameters at the nearest width, dim 8"):
        spend_budget(gpt(), Parameters(amount=10), work=make_workload(gpt(), 300), pace=never)
