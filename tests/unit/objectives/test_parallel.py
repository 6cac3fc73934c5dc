"""Hidden tokens in pairs: where each side stands, what the model is told of it, and that both sides see each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import IDS, pairs

from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.checks import find_mismatches
from saucier.objectives.config.single_objective import ObjectiveSetting
from saucier.objectives.masked import join_sides, separate_sides
from saucier.text.config import PairData, SpecialTokens, TextData, Unigram
from saucier.text.rows.batch import PADDING

XLM = FAMILIES["xlm"](16, 2, heads=2, vocab=100, length=32, languages=2, dropout=0.0)
ROBERTA = FAMILIES["roberta"](dim=16, layers=1, heads=2, vocab=100, length=40, padding=0)
T5 = FAMILIES["t5"](dim=16, layers=1, heads=2, head_dim=8, hidden=32, vocab=100)
MADE = pairs([[2, 10, 11, 2], [2, 12, 2, 0]], [[2, 20, 2, 0, 0], [2, 21, 22, 23, 2]])
SPECIAL = Unigram(special=SpecialTokens(pad="<pad>", mask="<mask>", sep="</s>"))


def many(count: int, length: int = 20) -> object:
    """Pairs of ordinary tokens."""
    random = np.random.default_rng(0)
    return pairs(*(random.integers(10, 90, (count, size)).tolist() for size in (length, length + 4)))


def test_the_target_stands_behind_its_source_and_begins_anew() -> None:
    rows = join_sides(MADE)
    assert rows.tokens.tolist() == [[2, 10, 11, 2, 2, 20, 2, 0], [2, 12, 2, 2, 21, 22, 23, 2]]
    assert rows.positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0], [0, 1, 2, 0, 1, 2, 3, 4]]
    assert rows.languages is not None
    assert rows.languages.tolist() == [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert rows.documents.tolist() == [[0] * 7 + [PADDING], [0] * 8]


def test_sides_apart_are_rows_with_numbers_of_their_own() -> None:
    rows = separate_sides(MADE)
    assert rows.tokens[:, :4].tolist() == [[2, 10, 11, 2], [2, 12, 2, 0], [2, 20, 2, 0], [2, 21, 22, 23]]
    assert sorted(rows.row.tolist()) == [0, 1, 2, 3]
    assert rows.languages is not None
    assert rows.languages[:, 0].tolist() == [0, 0, 1, 1]
    assert rows.positions[3].tolist() == [0, 1, 2, 3, 4]


def test_both_sides_are_hidden_at_the_rate() -> None:
    corrupt, _ = build_objective(c.TranslationMasked(), ObjectiveInputs(IDS, XLM))
    made = many(64)
    batch = corrupt(made, seed=0, step=0)
    chosen = batch["labels"] != IGNORED
    assert chosen.float().mean() == pytest.approx(0.15, abs=0.01)
    sides = [chosen[batch["langs"] == side].float().mean() for side in (0, 1)]
    assert sides == pytest.approx([0.15, 0.15], abs=0.03)
    assert batch["places"].amax() == 23
    assert "documents" not in batch


def test_the_model_is_told_languages_where_it_knows_them() -> None:
    for body, told in ((XLM, True), (ROBERTA, False)):
        for config in (c.TranslationMasked(), c.MaskedSides()):
            corrupt, objective = build_objective(config, ObjectiveInputs(IDS, body))
            batch = corrupt(many(4), seed=0, step=0)
            assert ("langs" in batch) == told
            loss = objective(build(body, seed=0), batch)
            assert torch.isfinite(loss.total)


def test_the_languages_add_up_to_the_whole() -> None:
    for config in (c.TranslationMasked(), c.MaskedSides()):
        for body in (XLM, ROBERTA, T5):
            corrupt, objective = build_objective(config, ObjectiveInputs(IDS, body))
            model, made = build(body, seed=0).eval(), many(6)
            alone = [dataclasses.replace(corrupt, language=side) for side in (0, 1)]  # type: ignore[type-var]
            losses = [objective(model, one(made, seed=0, step=0)) for one in (corrupt, *alone)]
            assert (losses[1].total + losses[2].total).item() == pytest.approx(losses[0].total.item(), rel=1e-5)
            assert min(loss.weight for loss in losses) > 0


@pytest.mark.parametrize(("config", "sees"), [(c.TranslationMasked(), True), (c.MaskedSides(), False)])
def test_a_hidden_token_is_told_from_the_other_side(config: c.Parallel, sees: bool) -> None:
    corrupt, _ = build_objective(config, ObjectiveInputs(IDS, XLM))
    model = build(XLM, seed=0).eval()
    made = pairs([[2, 10, 11, 12, 13, 2]], [[2, 20, 21, 22, 2, 0]])
    changed = dataclasses.replace(made, target=made.target.copy())
    changed.target[0, 1:4] = 30
    outputs = []
    for one in (made, changed):
        batch = corrupt(one, seed=0, step=0)
        batch.pop("labels")
        batch["input_ids"] = torch.where(batch["input_ids"] == 3, 5, batch["input_ids"])
        outputs.append(model(**batch).logits[0, :6])
    assert (not torch.equal(*outputs)) == sees


def test_a_pair_gives_the_same_numbers_alone_and_in_a_batch() -> None:
    corrupt, _ = build_objective(c.TranslationMasked(), ObjectiveInputs(IDS, XLM))
    model = build(XLM, seed=0).eval()
    both, alone = (corrupt(rows, seed=0, step=0) for rows in (MADE, MADE.select(slice(0, 1))))
    logits = [model(**{name: value for name, value in batch.items() if name != "labels"}).logits[0, :7]
              for batch in (both, alone)]
    assert torch.allclose(*logits, atol=1e-5)


def test_languages_and_reset_places_reach_the_model() -> None:
    corrupt, _ = build_objective(c.TranslationMasked(), ObjectiveInputs(IDS, XLM))
    model = build(XLM, seed=0).eval()
    batch = corrupt(MADE, seed=0, step=0)
    batch.pop("labels")
    whole = model(**batch).logits
    for name in ("langs", "places"):
        assert not torch.allclose(whole, model(**{key: value for key, value in batch.items() if key != name}).logits)


def test_each_side_has_half_of_the_row() -> None:
    assert build_objective(c.TranslationMasked(), ObjectiveInputs(IDS, XLM))[0].row_length(64) == 32
    assert build_objective(c.MaskedSides(), ObjectiveInputs(IDS, XLM))[0].row_length(64) == 64


@pytest.mark.parametrize(("config", "around", "words"),
                         [(c.TranslationMasked(), ObjectiveSetting(XLM, SPECIAL, TextData()),
                           "learns from pairs, and the data are running text"),
                          (c.TranslationMasked(masking=c.Masked(next_sentence=c.NextSentence())),
                           ObjectiveSetting(XLM, SPECIAL, PairData()), "no sentences of their own"),
                          (c.MaskedSides(), ObjectiveSetting(XLM, Unigram(special=SpecialTokens()), PairData()),
                           "needs a mask token"), (c.TranslationMasked(),
                                                   ObjectiveSetting(FAMILIES["gpt2"](dim=16, layers=1, heads=2,
                                                                                     vocab=100), SPECIAL, PairData()),
                                                   "only looks back"),])
def test_what_does_not_fit_is_said(config: c.Parallel, around: ObjectiveSetting, words: str) -> None:
    assert words in next(find_mismatches(config, around)).what


def test_what_is_done_without_is_said() -> None:
    assert list(c.TranslationMasked().list_reminders(XLM)) == []
    assert "no vectors for languages" in next(c.TranslationMasked().list_reminders(ROBERTA))
    assert "no table of positions" in [*c.TranslationMasked().list_reminders(T5)][1]
