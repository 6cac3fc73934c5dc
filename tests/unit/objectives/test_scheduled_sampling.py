"""Scheduled sampling: how often the truth is read, and what stands there otherwise."""

from __future__ import annotations

import math

import pytest
import torch
from tests.unit.objectives.helpers import IDS, pairs

from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.pairs import compute_truth_share

BODY = FAMILIES["transformer"](dim=16, layers=1, heads=2, hidden=32, vocab=100, dropout=0.0)
LINEAR = c.LinearTruth(slope=0.01, floor=0.2)


def test_the_three_schedules_are_those_of_the_paper() -> None:
    assert [compute_truth_share(LINEAR, step) for step in (0, 50, 80, 500)] == pytest.approx([1, 0.5, 0.2, 0.2])
    exponential = c.ExponentialTruth(base=0.99)
    assert [compute_truth_share(exponential, step) for step in (0, 100)] == pytest.approx([1, 0.99**100])
    sigmoid = c.InverseSigmoidTruth(speed=50)
    assert [compute_truth_share(sigmoid, step)
            for step in (0, 200)] == pytest.approx([50 / 51, 50 / (50 + math.exp(4))])
    assert compute_truth_share(sigmoid, 10**9) == pytest.approx(0, abs=1e-12)


def test_it_begins_as_teacher_forcing() -> None:
    model = build(BODY, seed=1)
    corrupt, objective = build_objective(c.SequenceToSequence(truth=LINEAR), ObjectiveInputs(IDS, BODY))
    batch = corrupt(pairs([[5, 6, 2]], [[7, 8, 2]]), seed=0, step=0)
    assert objective.at(0)(model, batch).total.item() == objective.held_out()(model, batch).total.item()


def test_predictions_take_the_place_of_true_tokens_as_often_as_the_schedule_says() -> None:
    model = build(BODY, seed=1).eval()
    corrupt, objective = build_objective(c.SequenceToSequence(truth=LINEAR), ObjectiveInputs(IDS, BODY))
    target = [[*range(50, 90), 2], [*range(50, 60), 2, *[0] * 30]] * 20
    batch = corrupt(pairs([[5, 6, 2]] * 40, target), seed=0, step=0)
    said = model(**{name: value for name, value in batch.items() if name != "labels"}).logits.argmax(-1)
    torch.manual_seed(0)
    mixed = objective.at(60).mixed(model, batch)
    true = batch["decoder_input_ids"]
    changed = mixed != true
    assert not changed[:, 0].any()  # the start token stays
    assert not changed[1::2, 11:].any()  # and so does padding
    assert torch.equal(mixed[:, 1:][changed[:, 1:]], said[:, :-1][changed[:, 1:]])
    wrong = (said[:, :-1] != true[:, 1:]) & (batch["labels"][:, 1:] >= 0)
    assert changed.sum() / wrong.sum() == pytest.approx(0.6, abs=0.05)
