"""The objective on real models: equal to its definition over full logits, and the head runs on targets only."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.unit.objectives.helpers import IDS, pairs, rows
from tests.unit.objectives.test_corruptions import long_rows
from torch import Tensor

from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import Loss, LossPart, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.prediction import Prediction

SMALL = {"dim": 16, "layers": 1, "heads": 2, "vocab": 100, "hidden": 24}


def test_causal_loss_is_cross_entropy_of_the_logits() -> None:
    model = build(FAMILIES["gpt2"](**SMALL, length=64)).eval()
    corrupt, objective = build_objective(c.Causal(), ObjectiveInputs(IDS))
    batch = corrupt(rows([[5, 6, 7, 8, 0], [9, 10, 11, 12, 13]]), seed=0, step=0)
    loss = objective(model, batch)
    logits = model(batch["input_ids"], batch.get("attention_mask")).logits
    expected = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum", ignore_index=-100)
    torch.testing.assert_close(loss.total, expected, rtol=1e-5, atol=1e-5)
    assert loss.weight == 7
    assert objective.count(batch) == {"tokens": 7}


def test_bert_has_two_losses_each_over_its_own_targets() -> None:
    model = build(FAMILIES["bert"](**SMALL, length=128)).eval()
    corrupt, objective = build_objective(c.Masked(next_sentence=c.NextSentence()), ObjectiveInputs(IDS))
    batch = corrupt(rows(long_rows(3)), seed=0, step=0)
    loss = objective(model, batch)
    output = model(batch["input_ids"], token_type_ids=batch["token_type_ids"])
    tokens = F.cross_entropy(output.logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
    sentences = F.cross_entropy(output.sentence_logits, batch["next_sentence"])
    torch.testing.assert_close(loss.over(objective.count(batch)), tokens + sentences, rtol=1e-5, atol=1e-5)


def test_label_smoothing_reports_the_plain_loss_beside() -> None:
    model = build(FAMILIES["transformer"](**SMALL)).eval()
    corrupt, objective = build_objective(c.SequenceToSequence(label_smoothing=0.1), ObjectiveInputs(IDS))
    batch = corrupt(pairs([[5, 6, 2]], [[7, 8, 2]]), seed=0, step=0)
    loss = objective(model, batch)
    plain = Prediction()(model, batch)
    torch.testing.assert_close(loss.figures["nll"].total, plain.total.detach(), rtol=1e-5, atol=1e-5)
    assert loss.total != plain.total


def test_the_head_sees_targets_only() -> None:
    model = build(FAMILIES["bert"](**SMALL, length=128))
    seen: list[int] = []
    model.head.language.transform.register_forward_hook(lambda module, args, out: seen.append(len(args[0])))
    corrupt, objective = build_objective(c.Masked(), ObjectiveInputs(IDS))
    objective(model, corrupt(rows(long_rows(2)), seed=0, step=0))
    assert seen == [30]


def test_every_parameter_of_every_family_learns() -> None:
    for family, objective, made in (("gpt2", c.Causal(), rows(long_rows(2))),
                                    ("bert", c.Masked(next_sentence=c.NextSentence()), rows(long_rows(2))),
                                    ("t5", c.SpanCorruption(), rows(long_rows(2)))):
        options = {"length": 128} if family != "t5" else {}
        model = build(FAMILIES[family](**SMALL, **options))
        corrupt, loss = build_objective(objective, ObjectiveInputs(IDS))
        batch = corrupt(made, seed=0, step=0)
        loss(model, batch).over(loss.count(batch)).backward()
        assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_model_without_a_head_is_one_clear_error() -> None:
    model = build(FAMILIES["gpt2"](**SMALL, length=64).model_copy(update={"head": None}))
    batch = build_objective(c.Causal(), ObjectiveInputs(IDS))[0](rows([[5, 6, 7]]), seed=0, step=0)
    with pytest.raises(InputError, match=r"model\.head"):
        Prediction()(model, batch)


def test_shares_of_micro_batches_add_up_to_the_mean() -> None:
    def loss(total: float, weight: float) -> Loss:
        return Loss({"tokens": LossPart(torch.tensor(total), weight)})

    shares: list[Tensor] = [part.over({"tokens": 10.0}) for part in (loss(6.0, 2), loss(4.0, 8))]
    assert sum(shares) == 1.0
    assert loss(0.0, 0).over({"tokens": 0.0}) == 0
