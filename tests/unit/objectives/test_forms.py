"""One objective on several kinds of bodies: where the tokens go, and what is learned."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import IDS, pairs, rows

from saucier import config as architecture
from saucier.errors import InputError
from saucier.families import FAMILIES
from saucier.model import build
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs
from saucier.objectives.batch_layout import DecoderLayout
from saucier.objectives.build import build_objective

X = IGNORED
SMALL = {"dim": 16, "layers": 1, "heads": 2, "vocab": 100}
GPT = FAMILIES["gpt2"](**SMALL, length=64)
T5 = FAMILIES["t5"](**SMALL, head_dim=8, hidden=32)
PREFIX = FAMILIES["gpt2"](**SMALL, length=64, visibility=architecture.Prefix())
BERT = FAMILIES["bert"](**SMALL, length=64)


def test_a_decoder_reads_source_then_target_and_learns_the_target_alone() -> None:
    batch = DecoderLayout(0, prefix=True)(pairs([[5, 6, 2], [5, 2, 0]], [[7, 8, 2], [9, 2, 0]]))
    assert batch["input_ids"].tolist() == [[5, 6, 2, 7, 8], [5, 2, 9, 2, 0]]
    assert batch["labels"].tolist() == [[X, X, 7, 8, 2], [X, 9, 2, X, X]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert batch["prefix_length"].tolist() == [3, 2]


def test_only_a_prefix_decoder_hears_of_the_prefix() -> None:
    made = rows([list(range(10, 50))])
    for body, told in ((GPT, False), (PREFIX, True)):
        batch = build_objective(c.SpanCorruption(), ObjectiveInputs(IDS, body))[0](made, seed=0, step=0)
        assert ("prefix_length" in batch) == told
    before = int(batch["prefix_length"][0]) - 1
    assert batch["labels"][0, :before].tolist() == [X] * before


@pytest.mark.parametrize("body", [GPT, PREFIX, T5], ids=["decoder", "prefix decoder", "both"])
def test_span_corruption_trains_any_body_that_writes(body: architecture.Transformer) -> None:
    ids = dataclasses.replace(IDS, sentinels=tuple(range(99, 69, -1)))
    corrupt, objective = build_objective(c.SpanCorruption(), ObjectiveInputs(ids, body))
    row = list(range(5, 5 + corrupt.row_length(48)))
    batch = corrupt(rows([row, row]), seed=0, step=0)
    assert max(batch["input_ids"].shape[1], batch.get("decoder_input_ids", batch["labels"]).shape[1]) <= 48
    loss = objective(build(body), batch)
    assert torch.isfinite(loss.total)


def test_rows_fill_the_decoder_of_one_stack() -> None:
    ids = dataclasses.replace(IDS, sentinels=tuple(range(99, 69, -1)))
    for rate in (0.1, 0.15, 0.5):
        corrupt = build_objective(c.SpanCorruption(rate=rate), ObjectiveInputs(ids, GPT))[0]
        row = np.arange(5, 5 + corrupt.row_length(48)) % 60 + 5
        assert 46 <= corrupt(rows([row.tolist()]), seed=0, step=0)["input_ids"].shape[1] <= 48


def test_rows_are_as_long_as_in_the_published_code() -> None:
    ids = dataclasses.replace(IDS, vocab=2000, sentinels=tuple(range(1999, 1899, -1)))
    corrupt = build_objective(c.SpanCorruption(), ObjectiveInputs(ids, T5))[0]
    assert corrupt.row_length(512) == 568


def test_masked_tokens_on_three_bodies() -> None:
    made = rows([[*range(10, 30), 0, 0], [*range(30, 52)]])
    plain = build_objective(c.Masked(), ObjectiveInputs(IDS, BERT))[0](made, seed=0, step=0)
    prefix = build_objective(c.Masked(), ObjectiveInputs(IDS, PREFIX))[0](made, seed=0, step=0)
    assert torch.equal(plain["input_ids"], prefix["input_ids"])
    assert prefix["prefix_length"].tolist() == [20, 22]
    both = build_objective(c.Masked(), ObjectiveInputs(IDS, T5))[0](made, seed=0, step=0)
    assert torch.equal(both["input_ids"], plain["input_ids"])
    assert both["labels"].tolist() == [[*range(10, 30), X, X], [*range(30, 52)]]


def test_a_decoder_that_only_looks_back_cannot_fill_in() -> None:
    with pytest.raises(InputError, match="only looks back"):
        build_objective(c.Masked(), ObjectiveInputs(IDS, GPT))


def test_an_encoder_alone_writes_nothing() -> None:
    with pytest.raises(InputError, match="of decoder, or of encoder and decoder, and this one is encoder"):
        build_objective(c.SpanCorruption(), ObjectiveInputs(IDS, BERT))


def test_a_prefix_decoder_learns_a_language_model_too() -> None:
    corrupt, objective = build_objective(c.Causal(), ObjectiveInputs(IDS, PREFIX))
    batch = corrupt(rows([list(range(10, 30))]), seed=0, step=0)
    assert batch["prefix_length"].tolist() == [0]
    told = objective(build(PREFIX, seed=3).eval(), batch)
    batch.pop("prefix_length")
    assert torch.allclose(told.total, objective(build(GPT, seed=3).eval(), batch).total)
