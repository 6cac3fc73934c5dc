"""Batches: nothing lost, nothing twice, no document mixed with another, and a pure function of seed and step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.text.places import FRAME, VOCAB, Make, document_of, sentence_pairs

from saucier.errors import InputError
from saucier.text.rows.batch import PADDING, PairRows, Rows
from saucier.text.rows.bucketed import BatchLimits, BucketedPairs, BucketedTexts, PairEvaluation, TextEnds
from saucier.text.rows.kinds import RowRequest
from saucier.text.rows.running import PackedBatches, PackedEvaluation
from saucier.text.rows.sentences import SentenceBatches
from saucier.text.rows.store import PairStore, Piece, write_stores

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda lengths: sum(lengths) > 1)


@pytest.mark.slow
@given(
    lengths=LENGTHS,
    length=st.integers(1, 12),
    overlap=st.integers(0, 1),
    batch=st.integers(1, 5),
    seed=st.integers(0, 3),
)
def test_packed_rows_show_every_token_once_an_epoch(
    make: Make, lengths: list[int], length: int, overlap: int, batch: int, seed: int
) -> None:
    store = make(lengths)
    rows = PackedBatches(store, length=length, batch=batch, seed=seed, overlap=overlap)
    count = rows.counts["rows"]
    shown = np.concatenate([rows[step].tokens for step in range(rows.steps_per_epoch)])[:count, :length]
    times = np.bincount(shown.ravel(), minlength=len(store.tokens))
    assert times.min() >= 1
    assert times.sum() - len(store.tokens) == rows.counts["repeated"] < length


@given(lengths=LENGTHS, length=st.integers(2, 12), seed=st.integers(0, 3), step=st.integers(0, 50))
def test_packed_rows_keep_documents_apart(make: Make, lengths: list[int], length: int, seed: int, step: int) -> None:
    store = make(lengths)
    batch = PackedBatches(store, length=length, batch=3, seed=seed, overlap=1)[step]
    documents = document_of(store, batch.tokens)
    for row in range(3):
        for place in range(1, length + 1):
            follows = batch.tokens[row, place] == batch.tokens[row, place - 1] + 1
            together = batch.documents[row, place] == batch.documents[row, place - 1]
            assert together == (follows and documents[row, place] == documents[row, place - 1])
            expected = batch.positions[row, place - 1] + 1 if together else 0
            assert batch.positions[row, place] == expected
    assert (batch.documents[:, 0] == 0).all()
    assert (batch.context == 1).all()


def test_epochs_have_other_borders_unless_the_shift_is_off(make: Make) -> None:
    store = make([100])
    rows, fixed = (PackedBatches(store, length=10, batch=10, shift=shift) for shift in (True, False))
    borders = [{int(row[0]) % 10 for row in rows[epoch].tokens} for epoch in range(8)]
    assert len({tuple(border) for border in borders}) > 3
    assert {int(row[0]) % 10 for epoch in range(8) for row in fixed[epoch].tokens} == {0}
    assert fixed[0].item.tolist() != fixed[1].item.tolist()
    assert all((batch.tokens[:, 0] == batch.item * 10).all() for batch in (fixed[0], fixed[1]))


@pytest.mark.slow
@given(lengths=LENGTHS, length=st.integers(2, 12), stride=st.integers(1, 12), batch=st.integers(1, 5))
def test_evaluation_predicts_every_token_once(
    make: Make, lengths: list[int], length: int, stride: int, batch: int
) -> None:
    store, stride = make(lengths), min(stride, length)
    rows = PackedEvaluation(store, length=length, batch=batch, overlap=1, stride=stride)
    targets = []
    for block in rows:
        follows = block.mask[:, 1:] & (block.documents[:, 1:] == block.documents[:, :-1])
        wanted = follows & (np.arange(1, block.tokens.shape[1]) >= block.context[:, None])
        targets += block.tokens[:, 1:][wanted].tolist()
        document = np.where(block.mask, document_of(store, block.tokens), -1)
        assert ((document[:, 1:] == document[:, :-1]) == (block.documents[:, 1:] == block.documents[:, :-1])).all()
    starts = set(store.offsets.tolist())
    assert sorted(targets) == [token for token in range(len(store.tokens)) if token not in starts]


def test_evaluation_with_a_stride_has_long_contexts(make: Make) -> None:
    rows = PackedEvaluation(make([100]), length=20, batch=100, overlap=1, stride=5)
    assert rows[0].context.tolist() == [0] + [16] * (rows.counts["rows"] - 1)
    with pytest.raises(InputError, match=r"evaluation\.stride: stride 21 is not between 1 and the length 20"):
        PackedEvaluation(make([100]), length=20, batch=100, stride=21)


def pair_store(folder: Path, lengths: list[tuple[int, int]]) -> PairStore:
    """Write pairs whose tokens tell their number; 1 ends every text."""
    write_stores(
        folder / "pairs",
        {"source": VOCAB, "target": VOCAB},
        [
            (Piece([number + 2] * (s - 1) + [1]), Piece([number + 2] * (t - 1) + [1]))
            for number, (s, t) in enumerate(lengths)
        ],
    )
    return PairStore(folder / "pairs")


SIZES = [(3 + n % 17, 2 + (n * 7) % 23) for n in range(101)]


def test_buckets_show_every_pair_once_an_epoch_within_the_limits(tmp_path: Path) -> None:
    store = pair_store(tmp_path, SIZES)
    pairs = BucketedPairs(store, BatchLimits(batch=16, tokens=200), seed=4)
    for epoch in range(3):
        batches = [pairs[epoch * pairs.steps_per_epoch + step] for step in range(pairs.steps_per_epoch)]
        assert sorted(np.concatenate([batch.item for batch in batches])) == list(range(101))
        for batch in batches:
            assert len(batch) <= 16
            assert max(batch.source.size, batch.target.size) <= 200
            assert (batch.source[:, 0] == batch.item + 2).all()
            assert (batch.target[:, 0] == batch.item + 2).all()
            assert (batch.source_lengths == np.array(SIZES)[batch.item, 0]).all()
            assert (np.where(batch.source_mask, batch.source, 0) == batch.source).all()
    padding = sum(
        batch.source.size - batch.source_mask.sum() + batch.target.size - batch.target_mask.sum() for batch in batches
    )
    assert pairs.counts["padding"] == padding
    assert pairs[0].item.tolist() != pairs[pairs.steps_per_epoch].item.tolist()


def test_buckets_pad_far_less_than_chance(tmp_path: Path) -> None:
    store = pair_store(tmp_path, SIZES)
    bucketed = BucketedPairs(store, BatchLimits(batch=10)).counts
    chance = 10 * 11 * (max(s for s, _ in SIZES) + max(t for _, t in SIZES)) - bucketed["tokens"]
    assert bucketed["padding"] < chance / 2


def test_long_pairs_are_cut_or_dropped_and_counted(tmp_path: Path) -> None:
    store = pair_store(tmp_path, SIZES)
    longer = [max(pair) > 12 for pair in SIZES]
    cut = BucketedPairs(store, BatchLimits(batch=200, length=12, ends=TextEnds(last=1)))
    assert (cut.counts["truncated"], cut.counts["dropped"]) == (sum(longer), 0)
    assert cut.counts["tokens_cut"] == sum(max(0, side - 12) for pair in SIZES for side in pair)
    batch = cut[0]
    assert batch.source.shape[1] == batch.target.shape[1] == 12
    last = batch.source[np.arange(len(batch)), batch.source_lengths - 1]
    assert (last == 1).all()
    assert (cut[0].source[:, -1] == 1).any()
    both = BucketedPairs(store, BatchLimits(batch=200, length=12, ends=TextEnds(last=1),
                                            target_ends=TextEnds(last=77, pad=9)))[0]
    short = both.target_lengths < 12
    assert (both.target[short, -1] == 9).all() and (both.source[both.source_lengths < 12, -1] == 0).all()
    dropped = BucketedPairs(store, BatchLimits(batch=200, length=12, too_long="drop"))
    assert (dropped.counts["truncated"], dropped.counts["dropped"], len(dropped[0])) == (
        0,
        sum(longer),
        101 - sum(longer),
    )
    with pytest.raises(InputError, match="every text is longer than the limit and is dropped; raise the length of 1"):
        BucketedPairs(store, BatchLimits(batch=200, length=1, too_long="drop"))


def test_evaluation_pairs_come_once_with_their_numbers(tmp_path: Path) -> None:
    batches = list(PairEvaluation(pair_store(tmp_path, SIZES), BatchLimits(batch=16)))
    assert sorted(np.concatenate([batch.item for batch in batches])) == list(range(101))
    assert (np.diff(np.concatenate([batch.source_lengths for batch in batches])) >= 0).all()


def test_bucketed_texts(make: Make) -> None:
    lengths = [5, 1, 9, 3, 30, 8]
    texts = BucketedTexts(make(lengths), BatchLimits(batch=4, length=10))
    seen = [texts[step] for step in range(texts.steps_per_epoch)]
    assert sorted(np.concatenate([batch.item for batch in seen])) == list(range(6))
    assert texts.counts["truncated"] == 1
    for batch in seen:
        assert batch.mask.sum(axis=1).tolist() == np.minimum(lengths, 10)[batch.item].tolist()
        assert (batch.positions[batch.mask] == np.nonzero(batch.mask)[1]).all()
        assert set(batch.documents[~batch.mask]) <= {PADDING}


def all_kinds(make: Make, folder: Path) -> list[Any]:
    """Make one of every kind of batches."""
    store = make([30, 7, 50, 21, 12, 90])
    pairs = pair_store(folder, SIZES)
    return [
        PackedBatches(store, length=16, batch=7, overlap=1, seed=2),
        BucketedTexts(store, BatchLimits(batch=4), seed=2),
        BucketedPairs(pairs, BatchLimits(batch=7, tokens=150), seed=2),
        sentence_pairs(store, batch=7, seed=2),
        sentence_pairs(store, RowRequest("sentence_pairs", real=0.5, wrong="swapped"), batch=2, seed=2),
        SentenceBatches(store, RowRequest("full_sentences"), **FRAME | {"batch": 3}, seed=2),
        SentenceBatches(store, RowRequest("document_sentences"), **FRAME | {"batch": 3}, seed=2),
        PackedEvaluation(store, length=16, batch=7),
        PairEvaluation(pairs, BatchLimits(batch=7)),
    ]


def test_processes_share_the_very_batch_of_one(make: Make, tmp_path: Path) -> None:
    for batches in all_kinds(make, tmp_path):
        for world in (2, 3):
            whole = batches[1]
            shares = [batches.rows(1, rank, world) for rank in range(world)]
            assert sum(len(part) for part in shares) == len(whole)
            assert np.concatenate([part.row for part in shares]).tolist() == list(range(len(whole)))
            assert np.concatenate([part.item for part in shares]).tolist() == whole.item.tolist()
            for part, start in zip(shares, np.cumsum([0, *map(len, shares)]), strict=False):
                same(part, whole.select(slice(start, start + len(part))))


def same(one: Rows | PairRows, other: Rows | PairRows) -> None:
    """Check that two batches are equal, up to padding on the right."""
    narrow = one.select(slice(None))
    for name in (
        "row",
        "item",
        *(
            ("tokens", "documents", "positions", "segments", "context", "sentence_label")
            if isinstance(one, Rows)
            else ("source", "target", "source_lengths", "target_lengths")
        ),
    ):
        assert (getattr(narrow, name) == getattr(other, name)).all(), name


def test_batches_are_a_function_of_seed_and_step(make: Make, tmp_path: Path) -> None:
    """In any order, from a fresh object, and over the end of an epoch."""
    first, second = (all_kinds(make, tmp_path / str(n)) for n in range(2))
    for one, other in zip(first, second, strict=True):
        steps = range(
            one.steps_per_epoch if isinstance(one, PackedEvaluation | PairEvaluation) else 3 * one.steps_per_epoch
        )
        forward = [one[step] for step in steps]
        backward = [other[step] for step in reversed(steps)][::-1]
        for a, b in zip(forward, backward, strict=True):
            same(a, b)


def test_other_seeds_give_other_orders(make: Make) -> None:
    store = make([30, 7, 50, 21, 12, 90])
    assert (
        PackedBatches(store, length=8, batch=9, seed=1)[0].item.tolist()
        != PackedBatches(store, length=8, batch=9, seed=2)[0].item.tolist()
    )


def test_micro_batches_are_as_narrow_as_they_can_be(tmp_path: Path) -> None:
    pairs = PairEvaluation(pair_store(tmp_path, SIZES), BatchLimits(batch=101))[0]
    narrow = pairs.select(slice(0, 10))
    assert narrow.source.shape == (10, int(narrow.source_lengths.max()))
    assert narrow.source.shape[1] < pairs.source.shape[1]
    assert narrow.row.tolist() == list(range(10))
