"""Rows of sentences: pairs whose relation is learned, and the four ways of RoBERTa's table 2."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.text.places import FRAME, HALF, Make, document_of, sentence_pairs

from saucier.errors import InputError
from saucier.text.rows.batch import Rows
from saucier.text.rows.kinds import RowRequest
from saucier.text.rows.sentences import SentenceBatches
from saucier.text.rows.store import TokenStore


def test_sentence_pairs_follow_or_come_from_another_document(make: Make) -> None:
    store = make([100, 3, 250, 60, 80, 0, 44] * 3)
    rows = sentence_pairs(store, seed=1)
    random, total, widths = 0, 0, []
    for batch in (rows[step] for step in range(3 * rows.steps_per_epoch)):
        for row in range(len(batch)):
            tokens = batch.tokens[row][batch.mask[row]]
            ends = np.flatnonzero(tokens == 50_002)
            assert (tokens[0], len(ends), ends[-1]) == (50_001, 2, len(tokens) - 1)
            first, second = tokens[1 : ends[0]], tokens[ends[0] + 1 : -1]
            assert (np.diff(first) == 1).all()
            assert (np.diff(second) == 1).all()
            assert batch.segments[row].tolist()[: len(tokens)] == [0] * (ends[0] + 1) + [1] * (
                len(tokens) - ends[0] - 1
            )
            apart = document_of(store, first[0]) != document_of(store, second[0])
            assert apart == bool(batch.sentence_label[row])
            assert apart or second[0] > first[-1]
            assert (batch.documents[row][: len(tokens)] == 0).all()
            random, total = random + int(apart), total + 1
            widths.append(len(tokens))
    assert 0.4 < random / total < 0.65
    assert max(widths) <= 40
    assert np.mean([width < 20 for width in widths]) > 0.02


def test_sentence_pairs_use_every_token_when_none_is_random(make: Make) -> None:
    store = make([100, 250, 60, 80])
    rows = sentence_pairs(store, RowRequest("segment_pairs", real=1.0, short=0.0), batch=rows_of(store))
    tokens = rows[0].tokens
    assert set(tokens[tokens < 50_000].tolist()) == set(range(490)) | {0}


def rows_of(store: TokenStore) -> int:
    """Count the rows of an epoch."""
    return sentence_pairs(store).counts["rows"]


def test_sentence_pairs_need_two_documents_and_room(make: Make) -> None:
    with pytest.raises(InputError, match="needs two documents or more"):
        sentence_pairs(make([100]))
    with pytest.raises(InputError, match="a length of 7 holds no pair"):
        sentence_pairs(make([100, 100]), length=7)


def pieces_of(batch: Rows, row: int) -> list[list[int]]:
    """Return the texts of a row, without [CLS] and between [SEP]s."""
    tokens = batch.tokens[row][batch.mask[row]].tolist()
    assert (tokens[0], tokens[-1]) == (50_001, 50_002)
    found: list[list[int]] = [[]]
    for token in tokens[1:-1]:
        if token == 50_002:
            found.append([])
        else:
            found[-1].append(token)
    return found


def test_the_order_of_two_pieces_is_swapped_half_of_the_time(make: Make) -> None:
    """Albert's negatives: the same two pieces, the later first. Lan et al. 2020, §3.1."""
    store = make([100, 5, 250, 60] * 3)
    rows = sentence_pairs(store, RowRequest("segment_pairs", real=0.5, wrong="swapped", short=0.0), seed=1)
    labels = []
    for step in range(6 * rows.steps_per_epoch):
        batch = rows[step]
        for row in range(len(batch)):
            first, second = pieces_of(batch, row)
            swapped = bool(batch.sentence_label[row])
            early, late = (second, first) if swapped else (first, second)
            assert early[-1] + 1 == late[0]
            assert document_of(store, early[0]) == document_of(store, late[-1])
            assert batch.segments[row].sum() == len(second) + 1
            labels.append(swapped)
    assert 0.45 < np.mean(labels) < 0.55
    assert rows.counts["left_out"] == 6  # documents of one sentence, and the last one of 50 in rows of seven
    assert sentence_pairs(store, HALF).counts["left_out"] == 0


def test_pairs_of_single_sentences_make_up_for_their_length(make: Make) -> None:
    """Table 2 of RoBERTa: a larger batch, so that the tokens stay about as many."""
    store = make([100, 50, 250, 60] * 3)
    rows = sentence_pairs(store, RowRequest("sentence_pairs", real=0.5), batch=16)
    batch = rows[0]
    for row in range(len(batch)):
        first, second = pieces_of(batch, row)
        assert all(piece[0] % 5 == 0 and len(piece) == 5 for piece in (first, second))
        apart = document_of(store, first[0]) != document_of(store, second[0])
        assert apart == bool(batch.sentence_label[row])
        assert apart or second[0] == first[0] + 5
    assert len(batch) == rows.counts["batch"] == round(16 * 40 / 13)
    assert abs(batch.mask.sum() - 16 * 40) < 13


def test_full_sentences_go_on_into_the_next_document_behind_a_separator(make: Make) -> None:
    store = make([100, 3, 250, 60, 0, 80])
    rows = SentenceBatches(store, RowRequest("full_sentences"), **FRAME)
    items = {}
    for step in range(rows.steps_per_epoch):
        batch = rows[step]
        assert set(batch.documents[batch.mask]) == {0}  # all of a row sees itself
        items |= {int(item): pieces_of(batch, row) for row, item in enumerate(batch.item)}
    pieces = [piece for item in sorted(items) for piece in items[item]]
    assert [token for piece in pieces for token in piece] == list(range(len(store.tokens)))
    for row in items.values():
        assert len(set(map(int, map(document_of, [store] * len(row), [piece[0] for piece in row])))) == len(row)
        assert sum(map(len, row)) + len(row) + 1 <= 40
    assert any(len(row) > 1 for row in items.values())
    assert all((piece[0] - store.offsets[document_of(store, piece[0])]) % 5 == 0 for piece in pieces)


def test_document_sentences_never_cross_and_batches_grow(make: Make) -> None:
    store = make([100, 3, 250, 20, 20, 20, 7, 7, 7, 7, 0, 80])
    rows = SentenceBatches(store, RowRequest("document_sentences"), **FRAME)
    seen: list[int] = []
    for step in range(rows.steps_per_epoch):
        batch = rows[step]
        for row, place in enumerate(step * len(batch) + batch.row):
            (piece,) = pieces_of(batch, row)
            assert len(set(document_of(store, np.array(piece)).tolist())) == 1
            seen += piece if place < rows.counts["rows"] else []
    assert sorted(seen) == list(range(len(store.tokens)))
    assert rows.counts["batch"] > 8
    tokens = [int(rows[step].mask.sum()) for step in range(20)]
    assert abs(np.mean(tokens) - 8 * 40) < 0.1 * 8 * 40


@pytest.mark.parametrize("kind", [HALF, RowRequest("segment_pairs", real=0.5, wrong="swapped"),
                                  RowRequest("sentence_pairs", real=0.5)])
def test_too_few_sentences_are_one_clear_error(make: Make, kind: RowRequest) -> None:
    with pytest.raises(InputError, match="held_out: no document has two sentences, which learning their relation"):
        sentence_pairs(make([5, 4, 3]), kind, where="data.held_out")
