"""PMI_n of n-grams against a count by hand, and the streaming that must not change it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.unit.text.places import write_store

from saucier.text import collocations as c
from saucier.text.rows.store import Piece, TokenStore
from saucier.text.tokenizer.word_boundaries import parse_marks

MARKS = parse_marks("1" * 60 + "0" * 40)
"""Ids from 60 on go on with a word."""
SPECIAL = np.array([0, 1])
HOW = {"longest": 4, "least": 4, "each": 1000}
Word = tuple[int, ...]


def documents(seed: int = 0) -> list[list[int]]:
    """Make texts in which (5 6 7) and (8 70) 9 stand together much more often than by chance."""
    random = np.random.default_rng(seed)
    pieces = [[5, 6, 7], [8, 70, 9], *([number] for number in range(5, 30)), [12, 80, 81], [13, 82]]
    weights = np.array([8.0, 8.0, *[1.0] * (len(pieces) - 2)])
    drawn = [random.choice(len(pieces), size, p=weights / weights.sum()) for size in (300, 4, 1, 500, 77)]
    return [[0, *(token for piece in one for token in pieces[piece]), 1] for one in drawn]


def stored(folder: Path, texts: list[list[int]]) -> TokenStore:
    """Write a store."""
    return write_store(folder / "store", [Piece(ids) for ids in texts], vocab=100)


def words(text: list[int]) -> list[Word]:
    """Split a text into words."""
    found: list[list[int]] = []
    for token in text:
        if token in SPECIAL:
            continue
        if token < 60 or not found:
            found.append([])
        found[-1].append(token)
    return [tuple(word) for word in found]


def n_grams(texts: list[list[int]], length: int) -> Counter[tuple[Word, ...]]:
    """Count n-grams of words."""
    return Counter(tuple(one[place:place + length]) for one in map(words, texts)
                   for place in range(len(one) - length + 1))


def segmentations(gram: tuple[Word, ...]) -> Iterator[list[tuple[Word, ...]]]:
    """Give every way to cut an n-gram, the whole one included."""
    yield [gram]
    for cut in range(1, len(gram)):
        for rest in segmentations(gram[cut:]):
            yield [gram[:cut], *rest]


def by_hand(texts: list[list[int]]) -> dict[tuple[Word, ...], tuple[int, float]]:
    """Compute count and PMI_n as the paper writes it. Levine et al. 2021, eq. 2."""
    @cache
    def counts(length: int) -> Counter[tuple[Word, ...]]:
        return n_grams(texts, length)

    def log_p(gram: tuple[Word, ...]) -> float:
        return math.log(counts(len(gram))[gram] / counts(len(gram)).total())

    return {gram: (count, min(log_p(gram) - sum(map(log_p, cut)) for cut in segmentations(gram) if len(cut) > 1))
            for length in range(2, 5) for gram, count in counts(length).items() if count >= 4}


def found_in(store: TokenStore, how: dict[str, int] = HOW) -> dict[Word, tuple[int, float]]:
    """Return count and measure by ids."""
    return {one.ids: (one.count, one.measure) for one in c.find_collocations(store, SPECIAL, MARKS, **how)}


def test_the_measure_is_that_of_the_definition(tmp_path: Path) -> None:
    texts = documents()
    wanted = {sum(gram, ()): pair for gram, pair in by_hand(texts).items() if pair[1] > 1e-9}
    found = found_in(stored(tmp_path, texts))
    assert found.keys() == wanted.keys()
    assert all(found[ids][0] == wanted[ids][0] and found[ids][1] == pytest.approx(wanted[ids][1]) for ids in wanted)
    best = list(found)
    assert {(5, 6), (6, 7), (8, 70, 9), (5, 6, 7)} <= set(found)
    assert [len(words([*ids])) for ids in best] == sorted(len(words([*ids])) for ids in best)
    for length in (2, 3):
        measures = [found[ids][1] for ids in best if len(words([*ids])) == length]
        assert measures == sorted(measures, reverse=True)


def test_reading_in_pieces_changes_only_what_lies_over_their_borders(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    texts = documents()
    store = stored(tmp_path, texts)
    whole = c.count_n_grams(store, SPECIAL, MARKS, 3)
    monkeypatch.setattr(c, "BLOCK", 256)
    pieces = c.count_n_grams(store, SPECIAL, MARKS, 3)
    assert pieces[0].total == whole[0].total == sum(map(len, map(words, texts)))
    assert dict(zip(pieces[0].hashes, pieces[0].counts, strict=True)) == dict(
        zip(whole[0].hashes, whole[0].counts, strict=True))
    borders = -(-len(store.tokens) // 250)
    assert 0 <= whole[2].total - pieces[2].total <= 2 * borders
    for table in pieces:
        for count, first, last, prefix in zip(table.counts, table.first, table.last, table.prefix, strict=True):
            assert 0 < last - first <= 12
            assert count > 0
            assert prefix in pieces[0].hashes or table is not pieces[1]


def test_only_so_many_are_remembered_and_the_rarest_are_forgotten(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    texts = documents()
    store = stored(tmp_path, texts)
    monkeypatch.setattr(c, "BLOCK", 256)
    monkeypatch.setattr(c, "MOST", 60)
    tables = c.count_n_grams(store, SPECIAL, MARKS, 3)
    assert all(len(table.hashes) <= 60 for table in tables)
    assert tables[1].forgotten > 0
    assert tables[0].forgotten == 0
    found = found_in(store)
    assert {(8, 70, 9), (5, 6), (5, 6, 7)} <= set(found)


def test_each_length_gives_so_many_at_most(tmp_path: Path) -> None:
    store = stored(tmp_path, documents())
    found = found_in(store, {"longest": 3, "least": 4, "each": 2})
    assert [len(words([*ids])) for ids in found] == [2, 2, 3, 3]
    assert [*found_in(store)][:2] == [*found][:2]


def test_hashes_of_what_was_kept_find_it_in_a_text(tmp_path: Path) -> None:
    texts = documents()
    kept = c.Collocations(tuple(c.find_collocations(stored(tmp_path, texts), SPECIAL, MARKS, **HOW)))
    two, three = kept.hashes(MARKS)[:2]
    line = np.array([8, 70, 9, 5, 6, 7, 30])
    there = c.find_words(line, np.ones(7, dtype=bool), np.zeros(7, dtype=bool), MARKS)
    assert np.isin(c.hash_word_runs(there, 2)[0], two)[[0, 2, 3]].all()
    assert np.isin(c.hash_word_runs(there, 3)[0], three).tolist()[2]
    assert len(two) == len(set(two.tolist())) == sum(one.words == 2 for one in kept.kept)
