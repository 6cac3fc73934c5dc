"""ORQA's inverse cloze loss (eq 64–66, 70) against the equation in float64, gradients included."""

from __future__ import annotations

import pytest
import torch
from tests.tolerances import assert_close
from tests.unit.objectives.teaching import IDS, MASK, make

from saucier import config as c
from saucier.objectives.base import Batch
from saucier.objectives.contrastive import InverseClozeLabels

BATCH: Batch = {"input_ids": torch.stack([IDS, IDS.flip(0)], 1), "attention_mask": torch.stack([MASK, MASK.flip(0)], 1),
                "blocks": torch.tensor([4, 9, 4])}


@pytest.mark.parametrize(("normalize", "scale", "factor"), [(False, None, 1.0), (True, None, 20.0), (True, 3.0, 3.0)])
def test_loss_and_gradients_are_those_of_the_equation(normalize: bool, scale: float | None, factor: float) -> None:
    head = c.EmbeddingHead(pooling=(c.Pooling(kind="cls"),), maps=(c.DenseMap(width=8, activation="identity"),),
                           normalize=normalize)
    model = make(head=head)
    loss = InverseClozeLabels(scale)(model, BATCH)
    vectors = []
    for side in (0, 1):
        for row in range(3):
            real = int(BATCH["attention_mask"][row, side].sum())
            hidden = model(BATCH["input_ids"][row:row + 1, side, :real]).last_hidden_state[0, 0]
            found = model.head.maps[0](hidden)
            vectors.append(found / found.norm() if normalize else found)
    questions, passages = vectors[:3], vectors[3:]
    expected = torch.zeros((), dtype=torch.float64)
    for row, others in enumerate(([0, 1], [0, 1, 2], [1, 2])):  # rows 0 and 2 are of one passage
        scores = torch.stack([factor * questions[row] @ passages[other] for other in others])
        expected = expected - factor * questions[row] @ passages[row] + scores.exp().sum().log()
    assert_close(loss.total, expected, 1e-9)
    assert loss.weight == 3
    weights = list(model.parameters())
    found_gradients = torch.autograd.grad(loss.total, weights, allow_unused=True)
    for one, other in zip(found_gradients, torch.autograd.grad(expected, weights, allow_unused=True), strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_close(one, other, 1e-9)
