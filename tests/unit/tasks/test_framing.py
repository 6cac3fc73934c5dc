"""Frames and windows: rows equal the tokenizer's own, windows leave nothing out, each token has one owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.tasks.encoded_examples import Frame, assign_owners, split_windows
from saucier.text.tokenizer.tokenizer import load_tokenizer

GOLDEN = Path(__file__).parents[4] / "shared" / "golden"
TOKENIZERS = [name for name in ("tokenizer-wordpiece", "tokenizer-byte-bpe", "tokenizer-unigram-t5", "roberta", "xlnet")
              if (GOLDEN / name / "tokenizer.json").is_file()]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_framed_row_is_the_tokenizers_own(name: str) -> None:
    tokenizer = load_tokenizer(GOLDEN / name)
    first, second = "who cooks the soup?", "the cook, in the evening."
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in (first, second)]
    pair = Frame.of(tokenizer, first, 2)
    row = pair.row(*ids)
    assert row.ids == tokenizer.encode(first, pair=second)
    whole = tokenizer.encodings([(first, second)], True)[0]
    assert row.types == whole.type_ids
    assert row.ids[pair.start(len(ids[0])):][:len(ids[1])] == ids[1]
    assert pair.size == len(row.ids) - len(ids[0]) - len(ids[1])
    single = Frame.of(tokenizer, first, 1)
    assert single.row(ids[0]).ids == tokenizer.encode(first)


def test_a_row_that_its_special_tokens_fill_has_no_room() -> None:
    frame = Frame(((1,), (2,), (2,)), ((0,), (0,), (1,)), (0, 1))
    assert frame.room(9, 5, what="", where="", remedy="") == 1
    for length, taken in ((8, 5), (3, 0), (1, 0), (0, 0), (-5, 0)):
        with pytest.raises(InputError, match=f"row 1: rows of {length} tokens have no room for a word; give more"):
            frame.room(length, taken, what="for a word", where="row 1", remedy="give more")


@pytest.mark.parametrize(("length", "room", "step"),
                         [(5, 8, 4), (8, 8, 4), (9, 8, 4), (40, 8, 4), (41, 7, 3), (9, 4, 1)])
def test_each_token_belongs_to_the_window_in_which_it_has_most_context(length: int, room: int, step: int) -> None:
    spans = split_windows(length, room, step)
    assert all(stop - start <= room for start, stop in spans)
    assert {place for start, stop in spans for place in range(start, stop)} == set(range(length))
    for place, owner in enumerate(assign_owners(spans).tolist()):
        scores = [min(place - start, stop - 1 - place) + 0.01 * (stop - start) if start <= place < stop else -1
                  for start, stop in spans]
        assert owner == scores.index(max(scores))
