"""Shares of targets: counted in the first batches alone, and never none at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from saucier.jobs.pretraining import held_out
from saucier.objectives.base import IGNORED, Batch


def test_shares_are_those_of_the_first_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the vocabulary, so many targets are counted as were asked for, in whole batches."""
    monkeypatch.setattr(held_out, "MOST_TARGETS", 4)
    taken = []

    def batches() -> Iterator[Batch]:
        for labels in ([7, 7, IGNORED], [IGNORED, 3, 7], [5, 5, 5]):
            taken.append(labels)
            yield {"labels": torch.tensor([labels])}

    found = held_out.target_frequencies(batches(), 100)
    assert len(taken) == 2
    assert found.sum() == pytest.approx(1.0)
    assert found[[7, 3, 5]] == pytest.approx(np.array([3.5, 1.5, 0.5]) / (4 + 0.5 * 100))
