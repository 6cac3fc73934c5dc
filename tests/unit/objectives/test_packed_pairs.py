"""Pairs that share rows: the losses and gradients of pairs alone, no leak, every pair once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saucier import InputError, build
from saucier import config as architecture
from saucier.families import FAMILIES
from saucier.model import Transformer
from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, ObjectiveInputs, TokenIds
from saucier.objectives.build import build_objective
from saucier.recipes import recipe
from saucier.text.rows.batch import PADDING, PackedTexts, PairRows, pack_texts

VOCAB, TARGETS = 40, 23
IDS = TokenIds(VOCAB, pad=0, bos=1, eos=2, special=(0, 1, 2))


def body(family: str) -> architecture.Transformer:
    """Return a small encoder-decoder without dropout; its learned positions have room for one pair alone."""
    room = {"length": 16} if family == "bart" else {}
    tree = FAMILIES[family](dim=16, layers=2, heads=2, hidden=24, vocab=VOCAB, dropout=0.0, **room)
    own = tree.output_embed.model_copy(update={"vocab": TARGETS, "tied": False})
    return tree.model_copy(update={"decoder_embed": own})


def pairs(count: int, seed: int = 0) -> PairRows:
    """Return pairs of many lengths, a source and a target up to 14 tokens each."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 15, size=(2, count))
    sides = [np.where(np.arange(14) < size[:, None], random.integers(3, vocab, size=(count, 14)), 0)
             for size, vocab in zip(sizes, (VOCAB, TARGETS), strict=True)]
    return PairRows(sides[0], sides[1], sizes[0], sizes[1], np.arange(count), np.arange(count))


def learned(model: Transformer, rows: PairRows,
            packing: c.Packing | None) -> tuple[float, float, dict[str, torch.Tensor]]:
    """Return the loss of a batch, its targets, and the gradients."""
    config = c.SequenceToSequence(packing=packing)
    corruption, objective = build_objective(config, ObjectiveInputs(IDS, model.config))
    model.zero_grad()
    loss = objective(model, corruption(rows, seed=0, step=0))
    loss.total.backward()
    return float(loss.total), loss.weight, {name: one.grad.clone() for name, one in model.named_parameters()
                                            if one.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("room", [14, 40, 400])
@pytest.mark.parametrize("family", ["transformer", "bart", "t5", "marian"])
def test_losses_and_gradients_are_those_of_pairs_alone(family: str, room: int) -> None:
    model, rows = build(body(family), seed=1), pairs(9)
    alone, shared = (learned(model, rows, packing) for packing in (None, c.Packing(length=room)))
    assert shared[1] == alone[1] == rows.target_lengths.sum()
    assert shared[0] == pytest.approx(alone[0], rel=1e-5)
    for name, gradient in alone[2].items():
        torch.testing.assert_close(shared[2][name], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["transformer", "bart", "t5", "marian"])
def test_padding_that_sees_nothing_spoils_nothing_in_bfloat16(family: str) -> None:
    """Sources fill their rows, targets do not: a padded place is in no pair and sees no source, here step by step."""
    model = build(body(family), seed=1).to(torch.bfloat16)
    corruption, _ = build_objective(c.SequenceToSequence(packing=c.Packing(length=5)),
                                    ObjectiveInputs(IDS, model.config))
    texts = np.array([[5, 6, 7, 8, 2], [9, 5, 7, 6, 2]])
    rows = PairRows(texts, np.where(np.arange(5) < [[5], [3]], texts, 0), np.array([5, 5]), np.array([5, 3]),
                    np.arange(2), np.arange(2))
    batch = corruption(rows, seed=0, step=0)
    real = batch.pop("labels") != IGNORED
    assert "attention_mask" not in batch and not batch["decoder_attention_mask"].all()
    logits = model(**batch).logits
    assert logits.isfinite().all()
    logits[real].sum().backward()
    assert all(one.grad.isfinite().all() for one in model.parameters() if one.grad is not None)


@pytest.mark.parametrize("family", ["transformer", "bart", "t5"])
def test_a_pair_moves_no_other_pair_of_its_row(family: str) -> None:
    """Other tokens in one source, or in one target, change what is said of that pair alone, to the last bit."""
    model, rows = build(body(family), seed=1).eval(), pairs(4)
    corruption, _ = build_objective(c.SequenceToSequence(packing=c.Packing(length=400)),
                                    ObjectiveInputs(IDS, model.config))
    batch = corruption(rows, seed=0, step=0)
    batch.pop("labels")
    assert len(batch["input_ids"]) == 1
    for side, before in (("input_ids", "documents"), ("decoder_input_ids", "decoder_documents")):
        changed = dict(batch)
        here = batch[before][0] == 2
        changed[side] = batch[side].clone()
        changed[side][0, here] = 7
        with torch.no_grad():
            first, second = (model(**one).logits[0] for one in (batch, changed))
        other = batch["decoder_documents"][0] != 2
        assert torch.equal(first[other], second[other])
        assert not torch.equal(first[~other], second[~other])


def test_every_pair_stands_once_and_rows_keep_their_room() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, 30, size=(random.integers(1, 60), 2))
        room = int(random.integers(5, 100))
        bins = pack_texts(lengths, room)
        assert sorted(np.concatenate(bins).tolist()) == list(range(len(lengths)))
        sums = np.stack([lengths[row].sum(axis=0) for row in bins])
        assert sums.max() <= max(room, lengths.max())
        assert len(bins) <= 2 * 11 / 9 * (lengths.sum(axis=0) / max(room, lengths.max())).max() + 6
        laid = PackedTexts.of(bins, lengths[:, 0])
        tokens = np.arange(30)[None] + 100 * np.arange(len(lengths))[:, None]
        values = laid.gather(tokens, PADDING)
        assert sorted(values[laid.mask].tolist()) == sorted(
            int(tokens[text, place]) for text in range(len(lengths)) for place in range(lengths[text, 0]))


def test_texts_of_one_side_fill_as_few_rows_as_can_be() -> None:
    bins = pack_texts(np.array([[5], [9], [5], [3], [7], [1]]), 10)
    assert [row.tolist() for row in bins] == [[1, 5], [3, 4], [0, 2]]


@pytest.mark.parametrize(("name", "words"), [("lstm-nano", ()), ("led-nano", ("data.kind=pairs",)),
                                             ("transformer-nano", ("objective.truth={kind: linear, slope: 0.01}",))])
def test_what_cannot_share_rows_is_refused(name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="packing"):
        recipe(name, [*words, "objective.kind=sequence_to_sequence", "objective.packing.length=64"])
