"""Losses of labels against their definitions, and what does not count."""

from __future__ import annotations

import torch
from tests.tolerances import assert_close
from torch import Tensor

from saucier import config as c
from saucier.families import FAMILIES
from saucier.model import Transformer, build
from saucier.objectives.base import Batch, Objective
from saucier.objectives.labels import ClassLabels, MultiLabels, NumberLabels, ReplacedTokenLabels, SpanLabels
from saucier.objectives.prediction import MarginalPrediction

IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [4, 4, 8, 2, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


def model(head: c.Head) -> Transformer:
    tree = FAMILIES["bert"](24, 1, heads=2, vocab=11, length=12)
    return build(tree.model_copy(update={"head": head})).eval()


def mean(objective: Objective, body: Transformer, batch: Batch) -> Tensor:
    loss = objective(body, batch)
    assert {name: part.weight for name, part in loss.parts.items()} == objective.count(batch)
    return loss.over({name: part.weight for name, part in loss.parts.items()})


def test_classes_are_the_log_probability_of_the_label() -> None:
    body, labels = model(c.ClassificationHead(classes=4)), torch.tensor([3, 1])
    logits = body(IDS, MASK).logits
    expected = -(logits.log_softmax(-1)[torch.arange(2), labels]).mean()
    assert_close(mean(ClassLabels(), body, {"input_ids": IDS, "attention_mask": MASK, "labels": labels}), expected)


def test_ignored_tokens_are_no_targets() -> None:
    body, labels = model(c.TokenHead(classes=3)), torch.full_like(IDS, -100)
    labels[0, 2] = 1
    batch = {"input_ids": IDS, "attention_mask": MASK, "labels": labels}
    assert ClassLabels().count(batch) == {"labels": 1.0}
    assert_close(mean(ClassLabels(), body, batch), -body(IDS, MASK).logits.log_softmax(-1)[0, 2, 1])


def test_one_class_is_a_number() -> None:
    body, labels = model(c.ClassificationHead(classes=1)), torch.tensor([0.5, -2.0])
    found = body(IDS, MASK).logits[:, 0]
    assert_close(mean(NumberLabels(), body, {"input_ids": IDS, "attention_mask": MASK, "labels": labels}),
                 ((found - labels) ** 2).mean())


def test_each_of_many_labels_is_decided_alone() -> None:
    body, labels = model(c.ClassificationHead(classes=3)), torch.tensor([[1, 0, 1], [0, 0, 1]])
    chance = body(IDS, MASK).logits.sigmoid()
    expected = -torch.where(labels == 1, chance, 1 - chance).log().mean()
    assert_close(mean(MultiLabels(), body, {"input_ids": IDS, "attention_mask": MASK, "labels": labels}), expected)


def test_replaced_tokens_are_asked_only_where_text_is() -> None:
    body, labels = model(c.ReplacedTokenHead()), (IDS > 6).long()
    chance = body(IDS, MASK).logits.sigmoid()
    expected = -(torch.where(labels == 1, chance, 1 - chance).log() * MASK).sum() / MASK.sum()
    assert_close(mean(ReplacedTokenLabels(), body, {"input_ids": IDS, "attention_mask": MASK, "labels": labels}),
                 expected)


def test_padding_does_not_change_the_loss_of_a_span() -> None:
    body = model(c.SpanHead())
    where = {"start_positions": torch.tensor([1]), "end_positions": torch.tensor([3])}
    alone = mean(SpanLabels(), body, {"input_ids": IDS[1:, :4], **where})
    padded = mean(SpanLabels(), body, {"input_ids": IDS[1:], "attention_mask": MASK[1:], **where})
    assert_close(padded, alone)


def test_an_answer_outside_the_row_is_no_target() -> None:
    batch = {"input_ids": IDS, "start_positions": torch.tensor([1, 50]), "end_positions": torch.tensor([3, -1])}
    assert SpanLabels().count(batch) == {"start": 1.0, "end": 1.0}
    assert mean(SpanLabels(), model(c.SpanHead()), batch).isfinite()


def test_choices_compete_within_their_group() -> None:
    body = model(c.ChoiceHead())
    ids = torch.stack([IDS, IDS.flip(1), IDS.roll(1, 1)], dim=1)
    logits = body(ids).logits
    assert logits.shape == (2, 3)
    labels = torch.tensor([2, 0])
    assert_close(mean(ClassLabels(), body, {"input_ids": ids, "labels": labels}),
                 -logits.log_softmax(-1)[torch.arange(2), labels].mean())
    one = body(ids[:, 1])
    assert_close(one.logits, logits[:, 1])


def test_a_token_found_in_one_text_counts_by_the_relevance_of_that_text() -> None:
    body = model(c.LanguageHead())
    ids, relevance = torch.stack([IDS, IDS.flip(1)], dim=1), torch.tensor([[2.0, -1.0], [0.0, 0.5]])
    labels = torch.full_like(IDS, -100)
    labels[0, 1], labels[1, 3] = 4, 7
    batch = {"input_ids": ids, "relevance_score": relevance, "labels": labels}
    chance = body(ids).logits.softmax(-1).unflatten(0, (2, 2))
    weight = relevance.softmax(-1)
    found = torch.stack([(weight[0] * chance[0, :, 1, 4]).sum(), (weight[1] * chance[1, :, 3, 7]).sum()])
    assert_close(mean(MarginalPrediction(), body, batch), -found.log().mean())
