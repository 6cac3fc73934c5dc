"""Rows of whole documents: none is torn that fits, none is lost, and each is read as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.text.places import Make, document_of

from saucier.text.rows.batch import Rows, compute_padding_share
from saucier.text.rows.running import DocumentBatches, DocumentEvaluation

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda lengths: sum(lengths) > 1)


def targets(block: Rows) -> list[int]:
    """Return the tokens of a batch that a causal model learns."""
    follows = block.mask[:, 1:] & (block.documents[:, 1:] == block.documents[:, :-1])
    wanted = follows & (np.arange(1, block.tokens.shape[1]) >= block.context[:, None])
    found: list[int] = block.tokens[:, 1:][wanted].tolist()
    return found


@pytest.mark.slow
@given(lengths=LENGTHS, length=st.integers(1, 12), batch=st.integers(1, 5))
def test_every_token_but_a_documents_first_is_a_target_once(
    make: Make, lengths: list[int], length: int, batch: int
) -> None:
    store = make(lengths)
    found = [token for block in DocumentEvaluation(store, length=length, batch=batch, overlap=1)
             for token in targets(block)]
    starts = set(store.offsets.tolist())
    assert sorted(found) == [token for token in range(len(store.tokens)) if token not in starts]


@pytest.mark.slow
@given(lengths=LENGTHS, length=st.integers(1, 12), overlap=st.integers(0, 1), seed=st.integers(0, 3))
def test_documents_that_fit_are_whole_and_alone(
    make: Make, lengths: list[int], length: int, overlap: int, seed: int
) -> None:
    store = make(lengths)
    rows = DocumentBatches(store, length=length, batch=2, seed=seed, overlap=overlap)
    seen: list[int] = []
    for step in range(rows.steps_per_epoch):
        block = rows[step]
        assert block.tokens.shape[1] <= length + overlap
        for tokens, documents, positions in zip(block.tokens, block.documents, block.positions, strict=True):
            for number in range(documents.max() + 1):
                one = tokens[documents == number]
                assert np.diff(one).tolist() == [1] * (len(one) - 1), "a piece is one run of its document"
                assert positions[documents == number].tolist() == list(range(len(one)))
                place = int(document_of(store, one[:1])[0])
                if store.lengths[place] <= length + overlap:
                    assert len(one) == store.lengths[place]
                    seen.append(place)
    fitting = {number for number, size in enumerate(store.lengths) if 0 < size <= length + overlap}
    assert set(seen) == fitting


def test_an_epoch_shows_each_row_once_in_another_order(make: Make) -> None:
    rows = DocumentBatches(make([10] * 24), length=9, batch=4, seed=1, overlap=1)
    assert rows.steps_per_epoch == 6
    orders = [np.concatenate([rows[6 * epoch + step].item for step in range(6)]).tolist() for epoch in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(24))


def test_processes_share_a_batch(make: Make) -> None:
    rows = DocumentBatches(make([7, 5, 9, 12, 3, 8, 2]), length=11, batch=4, overlap=1)
    whole, parts = rows[2], [rows.rows(2, rank, 3) for rank in range(3)]
    assert np.concatenate([part.item for part in parts]).tolist() == whole.item.tolist()
    assert np.concatenate([part.row for part in parts]).tolist() == whole.row.tolist()


def test_rows_are_filled_as_far_as_documents_allow_and_more_of_them_make_up_for_the_rest(make: Make) -> None:
    full = DocumentBatches(make([6, 4, 7, 3, 5, 5]), length=9, batch=3, overlap=1)
    assert full.counts == {"rows": 3, "batch": 3, "tokens": 30, "documents": 6, "length": 9, "divided": 0,
                           "repeated": 0, "padding": 0}
    half = DocumentBatches(make([6] * 10), length=9, batch=3, overlap=1)
    assert (half.counts["rows"], half.counts["batch"], half.counts["padding"]) == (10, 5, 40)
    assert compute_padding_share(half.counts) == 0.4


def test_a_long_document_is_divided_and_its_rest_shares_a_row(make: Make) -> None:
    rows = DocumentEvaluation(make([24, 5]), length=10, batch=4, overlap=1)
    assert (rows.counts["divided"], rows.counts["repeated"], rows.counts["padding"]) == (1, 2, 2)
    assert compute_padding_share(rows.counts) == 2 / 33
    assert [row[mask].tolist() for row, mask in zip(rows[0].tokens, rows[0].mask, strict=True)] == [
        list(range(11)), list(range(10, 21)), [*range(20, 24), *range(24, 29)]]
