"""Dropout: the rate it promises, the scale, the same mask for the same seed, and a gradient through the same mask."""

from __future__ import annotations

import pytest
import torch

from saucier.parts.norms import Dropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_mean(rate: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 1001)  # an odd count: not a whole number of 64-bit draws
    got = dropout(x, rate)
    assert abs(float((got == 0).float().mean()) - rate) < 0.002
    assert abs(float(got.mean()) - 1.0) < 0.01
    kept = got[got != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rate)), rtol=1e-3, atol=0)


def test_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(400_000), 0.5) == 0).float()
    for distance in (1, 2, 3, 4, 8):
        together = float((dropped[:-distance] * dropped[distance:]).mean())
        assert abs(together - 0.25) < 0.005, distance


def test_the_seed_decides_and_the_gradient_has_the_same_mask() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    torch.manual_seed(5)
    first = dropout(x, 0.4)
    torch.manual_seed(5)
    second = dropout(x, 0.4)
    assert torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(first, dropout(x, 0.4))
    first.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, first == 0)


def test_nothing_happens_outside_training_or_at_rate_zero() -> None:
    x = torch.randn(8, 8)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_low_precision_stays_low() -> None:
    assert dropout(torch.ones(10, dtype=torch.bfloat16), 0.5).dtype == torch.bfloat16
