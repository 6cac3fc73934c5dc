"""Sampled softmax: what is drawn, how often, and the loss against its formula and against the whole softmax."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tests.laws.zoo import family, scrambled
from tests.tolerances import assert_close
from tests.unit.objectives.helpers import IDS, rows

from saucier.objectives import config as c
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.cross_entropy import compute_inclusion, compute_sampled_cross_entropy, draw_token_sample


@pytest.mark.slow
def test_drawn_tokens_differ_and_come_as_often_as_expected() -> None:
    """Inclusion of every token over 4000 drawings, within five standard errors of what the correction assumes."""
    torch.manual_seed(0)
    vocab, samples, count = 40, 6, 4000
    seen, hoped = torch.zeros(vocab), torch.zeros(vocab, dtype=torch.float64)
    for _ in range(count):
        drawn, tries = draw_token_sample(vocab, samples, torch.device("cpu"))
        assert len(set(drawn.tolist())) == samples
        seen[drawn] += 1
        hoped += compute_inclusion(torch.arange(vocab), vocab, tries)
    spread = (hoped * (1 - hoped / count)).sqrt()
    assert ((seen - hoped).abs() < 5 * spread + 0.02 * hoped).all()
    first = math.log(2) / math.log(vocab + 1)
    assert abs(float(compute_inclusion(torch.tensor([0]), vocab, 1)) - first) < 1e-12


def test_the_loss_is_a_softmax_over_target_and_drawn_tokens() -> None:
    features, weight, bias = torch.randn(5, 8), torch.randn(30, 8), torch.randn(30)
    targets = torch.tensor([0, 3, 3, 29, 7])
    torch.manual_seed(3)
    drawn, tries = draw_token_sample(30, 12, torch.device("cpu"))
    torch.manual_seed(3)
    found = compute_sampled_cross_entropy(features, weight, bias, targets, samples=12).loss
    expected_loss = 0.0
    corrected = features @ weight.T + bias - compute_inclusion(torch.arange(30), 30, tries).log().float()
    for row, target in zip(corrected, targets.tolist(), strict=True):
        others = [number for number in drawn.tolist() if number != target]
        expected_loss += float(F.cross_entropy(row[[target, *others]][None], torch.tensor([0])))
    assert_close(found, torch.tensor(expected_loss), 1e-4)


def test_training_draws_and_measuring_is_exact() -> None:
    body, ids = family("elmo"), ObjectiveInputs(IDS, family("elmo"))
    model = scrambled(body)
    corruption, drawing = build_objective(c.Bidirectional(softmax=c.SampledSoftmax(samples=10)), ids)
    whole, all_of_them = (build_objective(c.Bidirectional(softmax=softmax), ids)[1]
                          for softmax in (c.WholeSoftmax(), c.SampledSoftmax(samples=8192)))
    batch = corruption(rows([[5, 6, 7, 8, 9, 10]]), seed=0, step=0)
    exact = whole(model, batch).parts["tokens"].total
    torch.manual_seed(1)
    first = drawing(model, batch).parts["tokens"].total
    torch.manual_seed(1)
    assert torch.equal(drawing(model, batch).parts["tokens"].total, first)
    assert not torch.allclose(first, exact, rtol=1e-3)
    assert torch.equal(all_of_them(model, batch).parts["tokens"].total, exact)
    with torch.no_grad():
        assert_close(drawing(model, batch).parts["tokens"].total, exact, 1e-4)
