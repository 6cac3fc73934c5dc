"""Scores of a mixture: sums over its parts, and means that count every target once."""

from __future__ import annotations

from typing import Any, cast

import pytest
from torch import nn

from saucier.training.evaluation import Evaluator, MixedEvaluator


def part(loss: float, right: float, targets: float) -> Evaluator:
    """Stand for a part with these scores."""
    scores = {"loss": loss, "nats": loss * targets, "targets": targets, "accuracy": right / targets}
    return cast(Evaluator, lambda model: dict(scores))


def test_accuracy_is_over_all_targets_and_the_loss_by_weight() -> None:
    mixed = MixedEvaluator((1.0, 3.0), (part(2.0, 30, 40), part(4.0, 1, 10)), ("words", "signs"))
    found: dict[str, Any] = mixed(nn.Identity())
    assert (found["targets"], found["nats"]) == (50, 120)
    assert found["accuracy"] == pytest.approx(31 / 50)
    assert found["loss"] == pytest.approx((2.0 + 3 * 4.0) / 4)
    assert (found["words_loss"], found["signs_loss"]) == (2.0, 4.0)
