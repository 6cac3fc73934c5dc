"""Language modelling in both directions: its labels, its loss, and the bodies that can learn it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import family, scrambled
from tests.tolerances import assert_close
from tests.unit.objectives.helpers import IDS, rows

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.bidirectional import BidirectionalCorruption
from saucier.objectives.build import build_objective


def test_labels_are_both_neighbours_of_the_same_document() -> None:
    """Nothing before a document's first token, nothing behind its last, nothing at padding or in what is only context.
    """
    found = BidirectionalCorruption()(rows([[5, 6, 7, 8, 9, 0]], [[0, 0, 0, 1, 1, -1]]), seed=0, step=0)
    assert found["input_ids"].tolist() == [[5, 6, 7, 8, 9, 0]]
    assert found["labels"].tolist() == [[6, 7, -100, 9, -100, -100]]
    assert found["previous"].tolist() == [[-100, 5, 6, -100, 8, -100]]
    late = BidirectionalCorruption()(rows([[5, 6, 7, 8]], context=2), seed=0, step=0)
    assert late["labels"].tolist() == [[-100, 7, 8, -100]]
    assert late["previous"].tolist() == [[-100, -100, -100, 7]]


def test_the_loss_is_the_sum_of_both_directions() -> None:
    """Eq 15, against plain cross-entropy of the model's two logits; packed documents begin anew."""
    model = scrambled(family("elmo"))
    corruption, objective = build_objective(c.Bidirectional(), ObjectiveInputs(IDS, family("elmo")))
    batch = corruption(rows([[5, 6, 7, 8, 9, 0], [10, 11, 12, 13, 14, 15]], [[0, 0, 0, 1, 1, -1], [0] * 6]), seed=0,
                       step=0)
    loss = objective(model, batch)
    output = model(**{key: value for key, value in batch.items() if key not in ("labels", "previous")})
    for part, logits, labels in (("tokens", output.logits, "labels"), ("backward", output.backward_logits, "previous")):
        expected = F.cross_entropy(logits.flatten(0, 1), batch[labels].flatten(), ignore_index=-100, reduction="sum")
        assert_close(loss.parts[part].total, expected, 1e-4)
        assert loss.parts[part].weight == float((batch[labels] != -100).sum())
    assert loss.figures["nll"].weight == sum(objective.count(batch).values())
    alone = model(torch.tensor([[8, 9]]))
    assert_close(output.logits[0, 3:5], alone.logits[0])
    assert_close(output.backward_logits[0, 3:5], alone.backward_logits[0])


@pytest.mark.parametrize("name", ["bert", "gpt2", "transformer"])
def test_other_bodies_are_refused(name: str) -> None:
    """They would see what they are to predict, or are no encoders."""
    with pytest.raises(InputError, match=r"objective\.kind"):
        build_objective(c.Bidirectional(), ObjectiveInputs(IDS, family(name)))


def test_gradients_of_a_label_leave_its_direction_alone() -> None:
    """The forward loss moves no backward cell, and the other way round; the tables learn from both."""
    model = scrambled(family("elmo"))
    corruption, objective = build_objective(c.Bidirectional(), ObjectiveInputs(IDS, family("elmo")))
    batch = corruption(rows([[5, 6, 7, 8, 9, 10]]), seed=0, step=0)
    for part, still in (("tokens", ".back."), ("backward", ".ahead.")):
        model.zero_grad()
        objective(model, batch).parts[part].total.backward()
        moved = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
        assert moved == {name for name, _ in model.named_parameters() if still not in name}
        assert torch.isfinite(model.embed.tokens.weight.grad).all()
