"""mBART's pretraining: where the language stands, and what is not made known of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import IDS, rows

from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs
from saucier.objectives.build import build_objective
from saucier.objectives.checks import find_mismatches
from saucier.objectives.config.single_objective import ObjectiveSetting
from saucier.text.config import LanguageData, SpecialTokens, TextData, Unigram

MBART = FAMILIES["mbart"](16, 1, heads=2, vocab=100, length=64, dropout=0.0)
OURS = dataclasses.replace(IDS, special=(*IDS.special, 4, 5), extra={"<python>": 4, "<english>": 5})
TOKENIZER = Unigram(special=SpecialTokens(pad="<pad>", eos="</s>", mask="<mask>", extra=("<python>", "<english>")))
TEXT = list(range(10, 50))


def batch_of(languages: list[int]) -> dict[str, torch.Tensor]:
    """Damage the same text in several languages."""
    made = rows([TEXT] * len(languages))
    told = np.broadcast_to(np.array(languages)[:, None], made.tokens.shape)
    return build_objective(c.MultilingualDenoising(), ObjectiveInputs(OURS, MBART))[0](
        dataclasses.replace(made, languages=told), seed=0, step=0)


def test_the_language_ends_both_sides_and_begins_the_decoder() -> None:
    batch = batch_of([0, 1, 1])
    assert batch["labels"].tolist() == [[*TEXT, 2, tag] for tag in (4, 5, 5)]
    assert batch["decoder_input_ids"].tolist() == [[tag, *TEXT, 2] for tag in (4, 5, 5)]
    for number, tag in enumerate((4, 5, 5)):
        real = batch["input_ids"][number][batch["input_ids"][number] != 0]
        assert real[-2:].tolist() == [2, tag]
    assert "langs" not in batch


def test_35_percent_are_hidden_in_spans_of_three_and_a_half() -> None:
    batch = batch_of([0] * 200)
    kept = ((batch["input_ids"] >= 10) & (batch["input_ids"] < 90)).sum(1).float()
    assert kept.tolist() == [round(0.65 * len(TEXT))] * 200
    spans = (batch["input_ids"] == 3).sum(1).float()
    assert 3.0 < 0.35 * len(TEXT) / float(spans.mean()) < 4.2


def test_a_row_fits_with_its_language() -> None:
    corrupt, objective = build_objective(c.MultilingualDenoising(), ObjectiveInputs(OURS, MBART))
    assert corrupt.row_length(64) == 62
    loss = objective(build(MBART, seed=0), batch_of([0, 1]))
    assert loss.weight == 2 * (len(TEXT) + 2)
    assert (batch_of([0])["labels"] != IGNORED).all()


def test_micro_batches_begin_with_their_own_languages() -> None:
    made = rows([TEXT] * 4)
    told = dataclasses.replace(made, languages=np.array([[0], [1], [0], [1]]) + np.zeros_like(made.tokens))
    corrupt, _ = build_objective(c.MultilingualDenoising(), ObjectiveInputs(OURS, MBART))
    part = corrupt(told.select(slice(1, 2)), seed=0, step=0)
    assert part["decoder_input_ids"][0].tolist() == corrupt(told, seed=0, step=0)["decoder_input_ids"][1].tolist()


@pytest.mark.parametrize(("config", "around", "words"),
                         [(c.MultilingualDenoising(), ObjectiveSetting(MBART, TOKENIZER, TextData()),
                           "learns from several languages"),
                          (c.MultilingualDenoising(tokens=("<python>", "<german>")),
                           ObjectiveSetting(MBART, TOKENIZER, LanguageData()), "names tokens that are not there"),
                          (c.MultilingualDenoising(tokens=("<python>", "<english>", "<english>")),
                           ObjectiveSetting(MBART, TOKENIZER, LanguageData()), "3 tokens for 2 languages"),])
def test_what_does_not_fit_is_said(config: c.MultilingualDenoising, around: ObjectiveSetting, words: str) -> None:
    assert words in next(find_mismatches(config, around)).what
