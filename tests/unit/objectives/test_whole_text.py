"""Conditional masked language modelling: how much is hidden, what is learned, and what it asks of a recipe."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.unit.objectives.helpers import IDS, pairs

from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.recipes import recipe

LENGTH_ID, MASK = 98, 97
GIVEN = dataclasses.replace(IDS, mask=MASK, extra={"<length>": LENGTH_ID})
BODY = FAMILIES["mask_predict"](dim=16, layers=1, heads=2, hidden=32, vocab=100, mask=MASK, longest=12, dropout=0.0)
END = GIVEN.eos
ROW = [LENGTH_ID, *range(10, 20), END]


def batch_of(count: int, step: int = 0) -> Batch:
    """Corrupt the same pair many times."""
    corruption, _ = build_objective(c.ConditionalMasked(), ObjectiveInputs(GIVEN, BODY))
    return corruption(pairs([ROW] * count, [ROW] * count), seed=0, step=step)


def test_the_number_of_hidden_tokens_is_even_from_one_to_all() -> None:
    """And so is every place hidden alike. Source: Ghazvininejad et al. 2019, §2.2."""
    hidden = batch_of(4000)["labels"].numpy() != IGNORED
    counts = np.bincount(hidden.sum(axis=1), minlength=11)
    assert counts[0] == 0
    assert chisquare(counts[1:]).pvalue > 0.001
    assert hidden.mean(axis=0) == pytest.approx(np.full(10, 0.55), abs=0.03)


def test_only_hidden_tokens_are_learned_and_the_frame_is_gone() -> None:
    batch = batch_of(50)
    target, labels = torch.arange(10, 20).expand(50, -1), batch["labels"]
    assert batch["decoder_input_ids"].equal(torch.where(labels == IGNORED, target, MASK))
    assert labels.equal(torch.where(labels == IGNORED, labels, target))
    assert batch["input_ids"].tolist() == [ROW] * 50
    assert batch["target_lengths"].tolist() == [10] * 50
    assert not batch_of(50, step=1)["labels"].equal(labels)


def test_targets_of_several_lengths() -> None:
    corruption, objective = build_objective(c.ConditionalMasked(), ObjectiveInputs(GIVEN, BODY))
    batch = corruption(pairs([[LENGTH_ID, 10, END], [LENGTH_ID, END, 0]], [[LENGTH_ID, 10, 11, 12, END],
                                                                           [LENGTH_ID, END, 0, 0, 0]]), seed=0, step=0)
    assert batch["target_lengths"].tolist() == [3, 0]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert objective.count(batch)["lengths"] == 2
    assert torch.isfinite(objective(build(BODY), batch).total)


def test_both_losses_are_those_of_the_definition() -> None:
    _, objective = build_objective(c.ConditionalMasked(label_smoothing=0.0), ObjectiveInputs(GIVEN, BODY))
    model, batch = build(BODY, seed=3), batch_of(4)
    loss = objective(model, batch)
    with torch.no_grad():
        output = model(batch["input_ids"], decoder_input_ids=batch["decoder_input_ids"])
    places = (batch["labels"] != IGNORED).nonzero()
    tokens = sum(-output.logits[row, place].log_softmax(-1)[batch["labels"][row, place]] for row, place in places)
    lengths = sum(-row.log_softmax(-1)[10] for row in output.length_logits)
    torch.testing.assert_close(loss.parts["tokens"].total.detach(), tokens)
    torch.testing.assert_close(loss.parts["lengths"].total.detach(), lengths)
    assert loss.parts["tokens"].weight == len(places)


@pytest.mark.parametrize(("change", "wrong"), [
    ("model.mask=4", "the mask token is 3"), ("model.longest=20", "lengths are told up to 20"),
    ("tokenizer.special.single=$A </s>", "a source does not begin with <length>"),
    ("objective.kind=sequence_to_sequence", "nothing but conditional_masked"),
    ("model.family=transformer", "unknown key"),
    ("tokenizer.special.mask=null", "needs a mask token")])
def test_a_recipe_that_cannot_work_is_refused(change: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        recipe("mask-predict-nano", [change])
    assert recipe("mask-predict-nano").objective.kind == "conditional_masked"
