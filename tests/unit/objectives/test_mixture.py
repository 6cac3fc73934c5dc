"""Objectives that take turns, and the modules that an objective may have of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tests.unit.objectives.helpers import IDS, rows
from tests.unit.training.toy import Counting, gpt, recipe
from tests.unit.training.toy import study as toy_study
from torch import nn

from saucier.checkpoints.steps import latest_checkpoint
from saucier.objectives import config as c
from saucier.objectives.base import Batch, Loss, LossPart, Objective, ObjectiveInputs
from saucier.objectives.build import MixedBatches, Turns, build_objectives, join_objectives
from saucier.objectives.prediction import Prediction
from saucier.training.loop import train
from saucier.training.update import TrainingData

MIXTURE = c.Mixture(parts=(c.MixturePart(weight=3, objective=c.SpanCorruption()),
                           c.MixturePart(weight=1, objective=c.SpanCorruption(rate=0.5, mean_span=8))))


def test_turns_come_by_weight_and_are_repeatable() -> None:
    turns = Turns((3, 1), seed=4)
    drawn = [turns.at(step) for step in range(2000)]
    assert drawn == [Turns((3, 1), seed=4).at(step) for step in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.25, abs=0.03)


def test_the_corruption_of_each_step_is_that_of_its_part() -> None:
    made = rows([list(range(10, 50))])
    parts = build_objectives(MIXTURE, ObjectiveInputs(IDS))
    corruption, objective = join_objectives(parts, seed=0)
    for step in range(12):
        chosen = parts[Turns((3, 1), 0).at(step)]
        assert torch.equal(corruption(made, seed=1, step=step)["labels"],
                           chosen.corruption(made, seed=1, step=step)["labels"])
        assert objective.at(step) == chosen.objective


@dataclass(frozen=True)
class WithHead(Objective):
    """Next tokens, plus a scalar of its own that is drawn to 3."""

    own: dict[str, nn.Module] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return ("tokens", "scalar")

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        return self.own

    def bind(self, model: nn.Module) -> None:
        self.own["scalar"] = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.own["scalar"].weight)

    def count(self, batch: Batch) -> dict[str, float]:
        return {**Prediction().count(batch), "scalar": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        found = Prediction()(model, batch)
        found.parts["scalar"] = LossPart((self.own["scalar"].weight.sum() - 3) ** 2, 1.0)
        return found


def learned(folder: Path, steps: int, stop: int) -> tuple[float, list[torch.Tensor]]:
    """Train in one go, or stop and go on with modules that were made anew."""
    for last in sorted({stop, steps}):
        model, objective = gpt(), WithHead()
        objective.bind(model)
        study = TrainingData(Counting(), toy_study().corruption, objective)
        train(model, study, recipe(last), run_folder=folder, reporters=[], recipe={"name": "test"})
    return objective.own["scalar"].weight.item(), [p.detach() for p in model.parameters()]


@pytest.mark.slow
def test_an_objectives_own_module_is_trained_saved_and_resumed(tmp_path: Path) -> None:
    whole, weights = learned(tmp_path / "a", 30, 30)
    resumed, others = learned(tmp_path / "b", 30, 12)
    assert 0.02 < whole < 3
    assert resumed == whole
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    assert (latest_checkpoint(tmp_path / "a") / "scalar.safetensors").is_file()


def test_a_mixture_reads_the_batches_of_its_part() -> None:
    short, long = Counting(length=8), Counting(length=16)
    mixed = MixedBatches(Turns((1, 1)), (short, long))
    for step in range(6):
        assert mixed[step].tokens.shape[1] == (8, 16)[Turns((1, 1)).at(step)]
