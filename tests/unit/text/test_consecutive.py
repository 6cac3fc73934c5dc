"""Rows that go on: every row continues itself, nothing is lost, and a batch is a pure function of seed and step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.text.places import Make

from saucier.text.rows.batch import PADDING
from saucier.text.rows.running import ConsecutiveBatches, ConsecutiveEvaluation

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=8).filter(lambda lengths: sum(lengths) > 1)


@pytest.mark.slow
@settings(max_examples=30)
@given(lengths=LENGTHS, length=st.integers(1, 12), batch=st.integers(1, 5), seed=st.integers(0, 3))
def test_an_epoch_shows_every_token_and_each_row_goes_on(
    make: Make, lengths: list[int], length: int, batch: int, seed: int
) -> None:
    store = make(lengths)
    total = len(store.tokens)
    rows = ConsecutiveBatches(store, length=length, batch=batch, seed=seed, overlap=1)
    for epoch in range(2):
        steps = range(epoch * rows.steps_per_epoch, (epoch + 1) * rows.steps_per_epoch)
        shown = [rows[step] for step in steps]
        assert [bool(one.continues.all()) for one in shown] == [number > 0 for number in range(len(shown))]
        assert [bool(one.continues.any()) for one in shown] == [number > 0 for number in range(len(shown))]
        stretches = np.concatenate([one.tokens[:, :length] for one in shown], axis=1)
        assert (np.diff(stretches, axis=1) % total == 1 % total).all()
        assert (np.diff(stretches.ravel()) % total == 1 % total).all()  # one stretch ends where the next begins
        times = np.bincount(stretches.ravel(), minlength=total)
        assert times.min() >= 1
        assert times.sum() - total == rows.counts["repeated"] < length * batch
        for before, after in itertools.pairwise(shown):
            assert (before.tokens[:, length] == after.tokens[:, 0]).all()


@settings(max_examples=30)
@given(lengths=LENGTHS, length=st.integers(1, 12), batch=st.integers(1, 5), step=st.integers(0, 40),
       world=st.integers(1, 3))
def test_processes_share_a_batch_and_keep_their_rows(
    make: Make, lengths: list[int], length: int, batch: int, step: int, world: int
) -> None:
    rows = ConsecutiveBatches(make(lengths), length=length, batch=batch, seed=1)
    parts = [rows.rows(step, rank, world) for rank in range(world)]
    assert np.array_equal(np.concatenate([part.tokens for part in parts]), rows[step].tokens)
    assert np.concatenate([part.row for part in parts]).tolist() == list(range(batch))


@settings(max_examples=30)
@given(lengths=LENGTHS, length=st.integers(1, 12), batch=st.integers(1, 5), overlap=st.integers(0, 1),
       before=st.integers(0, 30))
def test_evaluation_has_every_target_once_and_a_full_memory_before_it(
    make: Make, lengths: list[int], length: int, batch: int, overlap: int, before: int
) -> None:
    store = make(lengths)
    rows = ConsecutiveEvaluation(store, length=length, batch=batch, overlap=overlap, before=before)
    targets, read = [], {}
    for step in range(len(rows)):
        found = rows[step]
        assert bool(found.continues.any()) == bool(found.continues.all()) == (step > 0)
        for number, tokens, documents, context in zip(found.row, found.tokens, found.documents, found.context,
                                                      strict=True):
            own = tokens[context:][documents[context:] != PADDING].tolist()
            known = read.setdefault(int(number), [])
            if own and own[0] > overlap:
                assert len(known) >= min(before, own[0] - overlap)
            known += tokens[:length][documents[:length] != PADDING].tolist()
            targets += own
    assert sorted(targets) == list(range(len(store.tokens)))


def test_one_stretch_is_the_text_from_end_to_end(make: Make) -> None:
    rows = ConsecutiveEvaluation(make([7, 16]), length=5, batch=1, overlap=1, before=10)
    assert [one.tokens[0, :5].tolist() for one in (rows[step] for step in range(4))] == [
        [0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert len(rows) == 5
    with pytest.raises(IndexError):
        rows[5]
