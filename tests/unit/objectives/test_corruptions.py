"""What the corruptions make of rows, token by token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.unit.objectives.helpers import IDS, pairs, rows

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs, TokenIds
from saucier.objectives.build import build_objective

X = IGNORED


def test_causal_labels_are_the_next_tokens() -> None:
    batch = build_objective(c.Causal(), ObjectiveInputs(IDS))[0](rows([[5, 6, 7, 8]]), seed=0, step=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7]]
    assert batch["labels"].tolist() == [[6, 7, 8]]
    assert set(batch) == {"input_ids", "labels"}


def test_causal_never_predicts_across_documents_and_tells_the_model_of_them() -> None:
    batch = build_objective(c.Causal(), ObjectiveInputs(IDS))[0](rows([[5, 6, 7, 8, 9]], [[0, 0, 1, 1, 1]]), seed=0,
                                                                 step=0)
    assert batch["labels"].tolist() == [[6, X, 8, 9]]
    assert batch["documents"].tolist() == [[0, 0, 1, 1]]
    assert "places" in batch


def test_causal_padding_is_masked_and_no_target() -> None:
    batch = build_objective(c.Causal(), ObjectiveInputs(IDS))[0](rows([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]]), seed=0,
                                                                 step=0)
    assert batch["labels"].tolist() == [[6, 7, X, X], [6, 7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_context_tokens_are_no_targets() -> None:
    batch = build_objective(c.Causal(), ObjectiveInputs(IDS))[0](rows([[5, 6, 7, 8, 9]], context=3), seed=0, step=0)
    assert batch["labels"].tolist() == [[X, X, 8, 9]]


def long_rows(count: int = 40, length: int = 100) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [[2, *random.integers(10, 90, length - 2).tolist(), 2] for _ in range(count)]


def test_masked_shares_are_15_percent_and_80_10_10() -> None:
    original = rows(long_rows())
    batch = build_objective(c.Masked(), ObjectiveInputs(IDS))[0](original, seed=1, step=0)
    labels, inputs, tokens = batch["labels"], batch["input_ids"], torch.from_numpy(original.tokens)
    chosen = labels != X
    assert chosen.sum(1).tolist() == [15] * 40  # 15% of 98 ordinary tokens, rounded
    assert torch.equal(labels[chosen], tokens[chosen])
    assert torch.equal(inputs[~chosen], tokens[~chosen])
    assert not chosen[tokens == 2].any()
    shares = [(inputs[chosen] == 3).float().mean(), (inputs[chosen] == tokens[chosen]).float().mean()]
    assert abs(shares[0] - 0.8) < 0.05
    assert abs(shares[1] - 0.1) < 0.05
    drawn = inputs[chosen & (inputs != 3)]
    assert not torch.isin(drawn, torch.tensor(IDS.special)).any()


def test_dynamic_masks_differ_by_step_and_static_ones_do_not() -> None:
    original = rows(long_rows(2))
    dynamic, static = (build_objective(c.Masked(dynamic=flag), ObjectiveInputs(IDS))[0] for flag in (True, False))
    assert not torch.equal(dynamic(original, seed=1, step=0)["labels"], dynamic(original, seed=1, step=1)["labels"])
    assert torch.equal(dynamic(original, seed=1, step=3)["labels"], dynamic(original, seed=1, step=3)["labels"])
    assert torch.equal(static(original, seed=1, step=0)["labels"], static(original, seed=1, step=1)["labels"])
    assert not torch.equal(static(original, seed=1, step=0)["labels"], static(original, seed=2, step=0)["labels"])


@pytest.mark.parametrize("objective", [c.Masked(), c.SpanCorruption()])
def test_a_row_is_corrupted_the_same_alone_and_in_a_batch(objective: c.ObjectiveConfig) -> None:
    original = rows(long_rows(4))
    corrupt = build_objective(objective, ObjectiveInputs(IDS))[0]
    whole, part = corrupt(original, seed=1, step=2), corrupt(original.select(slice(2, 4)), seed=1, step=2)
    width = part["input_ids"].shape[1]
    assert torch.equal(whole["input_ids"][2:, :width], part["input_ids"])


def test_a_row_of_special_tokens_has_no_targets() -> None:
    batch = build_objective(c.Masked(), ObjectiveInputs(IDS))[0](rows([[2, 2, 2, 0]]), seed=0, step=0)
    assert (batch["labels"] == X).all()


def test_next_sentence_gives_segments_and_labels() -> None:
    made = dataclasses.replace(rows(long_rows(2)), sentence_label=np.array([0, 1]))
    made.segments[:, 50:] = 1
    batch = build_objective(c.Masked(next_sentence=c.NextSentence()), ObjectiveInputs(IDS))[0](made, seed=0, step=0)
    assert batch["next_sentence"].tolist() == [0, 1]
    assert batch["token_type_ids"].sum(1).tolist() == [50, 50]


def test_pairs_are_shifted_and_padding_is_no_target() -> None:
    made = pairs([[5, 6, 2], [5, 2, 0]], [[7, 8, 9, 2], [7, 2, 0, 0]])
    batch = build_objective(c.SequenceToSequence(), ObjectiveInputs(IDS))[0](made, seed=0, step=0)
    assert batch["decoder_input_ids"].tolist() == [[1, 7, 8, 9], [1, 7, 2, 0]]
    assert batch["labels"].tolist() == [[7, 8, 9, 2], [7, 2, X, X]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_without_bos_a_decoder_starts_with_pad() -> None:
    given = ObjectiveInputs(dataclasses.replace(IDS, bos=None))
    batch = build_objective(c.SequenceToSequence(), given)[0](pairs([[5, 2]], [[7, 2]]), seed=0, step=0)
    assert batch["decoder_input_ids"].tolist() == [[0, 7]]


def restored(source: list[int], target: list[int]) -> list[int]:
    """Put the spans of a target back into their source."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in IDS.sentinels:
            spans[token] = current = []
        elif token != 2:
            current.append(token)
    return [token for place in source if place != 2 for token in spans.get(place, [place])]


@pytest.mark.parametrize("length", [2, 3, 7, 40, 50])
def test_spans_can_be_put_back(length: int) -> None:
    random = np.random.default_rng(length)
    tokens = random.integers(10, 90, length).tolist()
    corrupt = build_objective(c.SpanCorruption(), ObjectiveInputs(IDS))[0]
    for step in range(20):
        batch = corrupt(rows([tokens]), seed=0, step=step)
        target = [t for t in batch["labels"][0].tolist() if t != X]
        assert restored(batch["input_ids"][0].tolist(), target) == tokens
        assert target[-1] == 2
        dropped = [t for t in target if t not in IDS.sentinels and t != 2]
        assert len(dropped) == max(1, round(0.15 * length))


@pytest.mark.parametrize(("rate", "length"), [(0.99, 20), (0.99, 49), (0.95, 9), (0.75, 2)])
def test_at_high_rates_one_token_at_least_is_left(rate: float, length: int) -> None:
    tokens = np.random.default_rng(length).integers(10, 90, length).tolist()
    batch = build_objective(c.SpanCorruption(rate=rate), ObjectiveInputs(IDS))[0](rows([tokens]), seed=0, step=0)
    target = [t for t in batch["labels"][0].tolist() if t != X]
    assert restored(batch["input_ids"][0].tolist(), target) == tokens
    assert len([t for t in target if t not in IDS.sentinels and t != 2]) == length - 1


def test_a_row_of_the_length_that_is_asked_for_fits_the_model() -> None:
    ids = dataclasses.replace(IDS, sentinels=tuple(range(99, 40, -1)))
    corrupt = build_objective(c.SpanCorruption(), ObjectiveInputs(ids))[0]
    for length in (16, 64, 128):
        tokens = list(range(5, 5 + corrupt.row_length(length)))
        assert corrupt(rows([tokens]), seed=0, step=0)["input_ids"].shape[1] <= length


@pytest.mark.parametrize(("objective", "needed"), [(c.Masked(), "mask"), (c.SpanCorruption(), "sentinels")])
def test_a_tokenizer_without_the_token_is_one_clear_error(objective: c.ObjectiveConfig, needed: str) -> None:
    with pytest.raises(InputError, match=f"tokenizer.special.{needed}"):
        build_objective(objective, ObjectiveInputs(TokenIds(vocab=10)))


def test_shares_above_one_are_refused() -> None:
    with pytest.raises(InputError, match="more than 1"):
        build_objective(c.Masked(mask=0.8, random=0.3), ObjectiveInputs(IDS))
