"""Weights that are pruned while a model learns: which are zero, that they stay so, that a run resumes to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.training.test_loop import Listener, Presser, equal
from tests.unit.training.toy import IDS, LENGTH, Counting, gpt, recipe
from torch import Tensor

from saucier.adaptation.pruning.methods import MagnitudePruning
from saucier.adaptation.pruning.prune import prune_model
from saucier.adaptation.pruning.sparsity import find_zeros, keep_least, list_meant
from saucier.errors import InputError, WorkError
from saucier.model import Transformer
from saucier.objectives import config as o
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.config.pruning import GradualMagnitude, KeptZeros, MovementPruning, Ramp
from saucier.objectives.pruning import WeightPruningObjective, keep_pruned
from saucier.training.loop import train
from saucier.training.update import TrainingData


def study(by: Any, steps: int, model: Transformer) -> TrainingData:
    corruption, loss = build_objective(o.Causal(), ObjectiveInputs(IDS, None, steps, LENGTH))
    objective = keep_pruned(loss, by, steps)
    objective.bind(model)
    return TrainingData(Counting(), corruption, objective)


def share_of_zeros(model: Transformer) -> float:
    matrices = [model.get_parameter(name) for name in list_meant(model, ("linear",))]
    return sum(int((one == 0).sum()) for one in matrices) / sum(one.numel() for one in matrices)


def test_zeros_stay_zero_while_the_others_learn(tmp_path: Path) -> None:
    model = prune_model(gpt(), MagnitudePruning(share=0.4))
    before = {name: one.clone() for name, one in model.named_parameters()}
    train(model, study(KeptZeros(), 6, model), recipe(6), run_folder=tmp_path, reporters=[])
    changed = 0
    for name, one in model.named_parameters():
        if name in find_zeros(model):
            assert torch.equal(one == 0, before[name] == 0), name
            changed += int((one != before[name]).sum())
    assert changed > 0.5 * sum(before[name].numel() for name in find_zeros(model))
    assert share_of_zeros(model) == pytest.approx(0.4, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("by", [KeptZeros(), GradualMagnitude(share=0.5, first=0.1, every=2),
                                MovementPruning(share=0.5, first=0.1, every=2)], ids=lambda by: by.kind)
def test_resumed_it_is_bit_equal(by: Any, tmp_path: Path) -> None:
    def start() -> Transformer:
        return prune_model(gpt(), MagnitudePruning(share=0.2)) if by.kind == "kept_zeros" else gpt()

    whole, parts, again = start(), start(), start()
    train(whole, study(by, 9, whole), recipe(9), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted"):
        train(parts, study(by, 9, parts), recipe(9), run_folder=tmp_path / "parts", reporters=[Presser(5)])
    train(again, study(by, 9, again), recipe(9), run_folder=tmp_path / "parts", reporters=[])
    assert equal(whole, again)
    assert not equal(whole, parts)
    assert share_of_zeros(again) == pytest.approx(0.2 if by.kind == "kept_zeros" else 0.5, abs=1e-3)


def test_a_ramp_follows_its_cube() -> None:
    """Zhu and Gupta 2017, eq 1, at a quarter, half and three quarters of the way."""
    ramp = Ramp(share=0.8, first=0.2, last=0.6, every=1)
    assert [ramp.at(step, 100) for step in (0, 20)] == [0.0, 0.0]
    for step, part in ((30, 0.25), (40, 0.5), (50, 0.75)):
        assert ramp.at(step, 100) == pytest.approx(0.8 * (1 - (1 - part)**3))
    assert ramp.at(60, 100) == ramp.at(99, 100) == pytest.approx(0.8)
    assert Ramp(share=0.8, every=10).at(47, 100) == Ramp(share=0.8, every=10).at(40, 100)


@pytest.mark.parametrize("by", [GradualMagnitude, MovementPruning])
def test_the_share_grows_and_ends_at_the_one_that_was_asked_for(by: Any, tmp_path: Path) -> None:
    model, config = gpt(), by(share=0.6, first=0.0, last=0.5, every=1)
    data = study(config, 10, model)
    shares: list[float] = []

    class Watch(Listener):
        def progress(self, progress: Any) -> None:
            shares.append(share_of_zeros(model))

    train(model, data, recipe(10), run_folder=tmp_path, reporters=[Watch()])
    assert shares == pytest.approx([config.at(step, 10) for step in range(10)], abs=2e-3)
    assert shares[2] > shares[1] > 0 and shares[-1] == pytest.approx(0.6, abs=1e-4)


class Straight(torch.autograd.Function):
    """W ⊙ M(S) whose derivative by S is taken straight through: Sanh et al. 2020, §4."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, score: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(weight, mask)
        return weight * mask

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, mask = ctx.saved_tensors
        return gradients[0] * mask, gradients[0] * weight, None


def test_movement_is_that_of_the_paper() -> None:
    """Three updates by plain descent against dense weights and scores with masks of their own in each pass."""
    steps, rate = 3, 0.5
    by = MovementPruning(share=0.5, first=0.0, last=0.6, every=1)
    ours, theirs = gpt(dropout=0.0).double(), gpt(dropout=0.0).double()
    data = study(by, steps, ours)
    objective = data.objective
    assert isinstance(objective, WeightPruningObjective)
    names = objective.state.names
    dense = {name: one.detach().clone().requires_grad_() for name, one in theirs.named_parameters()}
    scores = {name: torch.zeros_like(dense[name], requires_grad=True) for name in names}
    masks = {name: torch.ones_like(dense[name]) for name in names}
    for step in range(steps):
        batch = data.corruption(Counting()[step], seed=0, step=step)
        objective.at(step)(ours, batch).total.backward()
        with torch.no_grad():
            for parameter in [*ours.parameters(), *objective.state.scores]:
                parameter -= rate * 1e-2 * parameter.grad
                parameter.grad = None
        objective.finish_update(ours, step)

        given = {name: Straight.apply(one, scores[name], masks[name]) if name in scores else one
                 for name, one in dense.items()}
        total = loss_of(objective.inner, theirs, given, batch)
        every = [*dense.values(), *scores.values()]
        found = torch.autograd.grad(total, every)
        with torch.no_grad():
            for one, gradient in zip(every, found, strict=True):
                one -= rate * 1e-2 * gradient
        masks = {name: one.double() for name, one in keep_least(
            {name: one.detach() for name, one in scores.items()}, by.at(step, steps), "model").items()}
        for name, one in ours.named_parameters():
            expected = dense[name] * masks[name] if name in masks else dense[name]
            assert torch.allclose(one, expected, rtol=1e-10, atol=1e-12), (step, name)
        back = sum(float((objective.state.hidden[place] != 0).sum()) for place in range(len(names)))
        assert (back > 0) == (by.at(step, steps) > 0)


def loss_of(inner: Any, model: Transformer, weights: dict[str, Tensor], batch: dict[str, Tensor]) -> Tensor:
    """Return the loss of a model with other tensors in the place of its parameters."""
    by_id = {id(model.get_parameter(name)): value for name, value in weights.items()}
    places = [(module, end) for module in model.modules() for end, one in module._parameters.items() if one is not None]
    before = [module._parameters.pop(end) for module, end in places]
    for (module, end), one in zip(places, before, strict=True):
        setattr(module, end, by_id[id(one)])  # a tied head has its table's
    try:
        total: Tensor = inner(model, batch).total
    finally:
        for (module, end), value in zip(places, before, strict=True):
            delattr(module, end)
            module._parameters[end] = value
    return total


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no weight of the model's stacks is zero"):
        study(KeptZeros(), 5, gpt())
    with pytest.raises(InputError, match="unknown role"):
        study(MovementPruning(share=0.5, where=("wheel",)), 5, gpt())
