"""The span-boundary objective: its numbers, and what it may and may not look at."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.helpers import rows
from tests.unit.training.toy import IDS, small
from torch import Tensor

from saucier.model import Transformer, build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.masked import BoundaryNetwork, SpanBoundary
from saucier.objectives.prediction import Prediction
from saucier.parts.output import Output

WIDTH, LENGTH = 6, 24


def made(family: str = "bert", **options: object) -> tuple[Transformer, SpanBoundary, Prediction, Batch]:
    """Build a model, the companion bound to it, the whole objective, and a batch."""
    body = small(family, dropout=0.0, **options)
    masked = c.Masked(rate=0.3, choice=c.SpanMasking(boundary=c.SpanBoundary(position_width=WIDTH)))
    ids = dataclasses.replace(IDS, word_marks="1" * 20 + "0" * 9)
    corruption, objective = build_objective(masked, ObjectiveInputs(ids, body, length=LENGTH))
    model = build(body, seed=1)
    objective.bind(model)
    tokens = np.random.default_rng(0).integers(4, 25, (5, LENGTH)).tolist()
    batch = corruption(rows(tokens), seed=1, step=0)
    assert isinstance(objective, Prediction)
    (boundary,) = objective.auxiliary
    assert isinstance(boundary, SpanBoundary)
    return model, boundary, objective, batch


def by_hand(model: Transformer, network: BoundaryNetwork, hidden: Tensor, batch: Batch) -> Tensor:
    """Compute the loss one target after another, as §3.2 of the paper writes it."""
    total = torch.zeros(())
    head = model.head.language
    for row, place in (batch["labels"] != IGNORED).nonzero().tolist():
        first = last = place
        while batch["labels"][row, first - 1] != IGNORED:
            first -= 1
        while batch["labels"][row, last + 1] != IGNORED:
            last += 1
        read = torch.cat([hidden[row, first - 1], hidden[row, last + 1], network.positions.weight[place - first]])
        for dense, norm in ((network.first, network.first_norm), (network.second, network.second_norm)):
            read = F.layer_norm(F.gelu(dense.weight @ read + dense.bias), read.shape[:0] + dense.bias.shape,
                                norm.weight, norm.bias)
        logits = head.weight @ read + head.bias
        total = total - logits.log_softmax(-1)[batch["labels"][row, place]]
    return total


def test_equals_the_definition_and_is_added_to_the_tokens() -> None:
    model, boundary, objective, batch = made()
    network = boundary.modules["boundary"]
    assert isinstance(network, BoundaryNetwork)
    loss = objective(model, batch)
    hidden = model(input_ids=batch["input_ids"]).last_hidden_state
    assert loss.parts["boundary"].total.item() == pytest.approx(by_hand(model, network, hidden, batch).item(), rel=1e-5)
    assert loss.parts["boundary"].weight == loss.parts["tokens"].weight == (batch["labels"] != IGNORED).sum()
    assert objective.count(batch) == {name: part.weight for name, part in loss.parts.items()}


def test_only_the_tokens_around_a_span_are_read() -> None:
    model, boundary, _, batch = made()
    hidden = torch.randn(5, LENGTH, 32, requires_grad=True)
    loss = boundary(model, Output(last_hidden_state=hidden), batch)
    loss.parts["boundary"].total.backward()
    touched = hidden.grad.abs().sum(-1) > 0
    chosen = batch["labels"] != IGNORED
    around = torch.zeros_like(chosen)
    for name in boundary.targets:
        row = torch.arange(5)[:, None].expand_as(chosen)[chosen]
        around[row, batch[name][chosen]] = True
    assert torch.equal(touched, around)
    assert not (touched & chosen).any()


def test_the_output_matrix_is_the_models() -> None:
    model, boundary, _, batch = made()
    hidden = torch.randn(5, LENGTH, 32)
    boundary(model, Output(last_hidden_state=hidden), batch).parts["boundary"].total.backward()
    assert model.head.language.weight.grad.abs().sum() > 0
    shapes = {tuple(parameter.shape) for parameter in boundary.modules["boundary"].parameters()}
    assert shapes == {(LENGTH, WIDTH), (32, 2 * 32 + WIDTH), (32, 32), (32,)}


def test_without_gradients_hits_are_counted() -> None:
    model, _, objective, batch = made()
    with torch.no_grad():
        figures = objective(model, batch).figures
    assert 0 <= figures["boundary_correct"].total <= figures["boundary_correct"].weight
