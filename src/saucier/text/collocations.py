"""Collocations: n-grams of a token store that are likelier than their parts (PMI), counted as the store streams.

Letters: W words of a block, N n-grams, L tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.text.rows.batch import GOLDEN, Hashes, Ints, mix_bits
from saucier.text.rows.store import TokenStore
from saucier.text.tokenizer.word_boundaries import find_word_starts

BLOCK = 1 << 20
"""Tokens that are read at a time."""
MOST = 1 << 21
"""N-grams of one length that are remembered; beyond that the rarest are forgotten."""


@dataclass(frozen=True, slots=True)
class Words:
    """The words of some text. Shapes: all [W]."""

    hashes: Hashes
    begin: Ints
    """The place of each word's first token."""
    end: Ints
    joined: NDArray[np.bool_]
    """Whether a word follows the one before directly, in the same document."""


@dataclass(frozen=True, slots=True)
class Table:
    """The n-grams of one length, sorted by hash. Shapes: all [N]."""

    hashes: Hashes
    counts: Ints
    first: Ints
    """Where each begins for the first time."""
    last: Ints
    """Where that one ends."""
    prefix: Hashes
    """Of the n-gram without its last word."""
    suffix: Hashes
    """Of the n-gram without its first word."""
    total: int = 0
    """N-grams of this length in the text, the forgotten ones too."""
    forgotten: int = 0
    """How many different ones were forgotten because there were too many."""

    def pick(self, chosen: NDArray[Any]) -> Table:
        """Return the chosen n-grams."""
        wide = ("hashes", "counts", "first", "last", "prefix", "suffix")
        return replace(self, **{name: getattr(self, name)[chosen] for name in wide})


@dataclass(frozen=True, slots=True)
class Collocation:
    """One n-gram that was kept."""

    ids: tuple[int, ...]
    words: int
    count: int
    measure: float


@dataclass(frozen=True, slots=True)
class Collocations:
    """The n-grams that a run hides whole."""

    kept: tuple[Collocation, ...]

    def hashes(self, marks: Ints) -> tuple[Hashes, ...]:
        """Return the hashes of the n-grams of two words, of three, ...; each sorted. `marks`: see `word_marks`."""
        longest = max((one.words for one in self.kept), default=1)
        return tuple(np.sort(hash_n_grams([one.ids for one in self.kept if one.words == words], words, marks))
                     for words in range(2, longest + 1))


def hash_n_grams(phrases: Sequence[Sequence[int]], words: int, marks: Ints) -> Hashes:
    """Hash n-grams of `words` words. Shapes: -> [N]."""
    tokens = np.array([number for ids in phrases for number in ids], dtype=np.int64)
    borders = np.zeros(len(tokens), dtype=bool)
    borders[np.cumsum([0, *map(len, phrases[:-1])])[:len(phrases)]] = True
    found = find_words(tokens, np.ones_like(borders), borders, marks)
    return hash_word_runs(found, words)[0][::words]


def find_words(tokens: Ints, inside: NDArray[np.bool_], borders: NDArray[np.bool_], marks: Ints) -> Words:
    """Find the words of a row of tokens. Shapes: tokens, inside, borders [L]; marks [V]."""
    starts = find_word_starts(tokens, inside, borders, marks)
    begin = starts.nonzero()[0]
    number = starts.cumsum()[inside] - 1
    size = np.bincount(number, minlength=len(begin)).astype(np.int64)
    place = inside.nonzero()[0] - begin[number]
    parts = mix_bits((tokens[inside].astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
                         + place.astype(np.uint64))
    hashes = np.add.reduceat(parts, size.cumsum() - size) if len(begin) else parts
    end = begin + size
    joined = np.zeros(len(begin), dtype=bool)
    joined[1:] = (begin[1:] == end[:-1]) & ~borders[begin[1:]]
    return Words(hashes, begin, end, joined)


def hash_word_runs(words: Words, length: int) -> tuple[Hashes, NDArray[np.bool_]]:
    """Hash the `length` words from each word on, and say whether they belong together. Shapes: -> [W - length + 1]."""
    count = max(0, len(words.hashes) - length + 1)
    total, whole = np.zeros(count, dtype=np.uint64), np.ones(count, dtype=bool)
    for place in range(length):
        total += mix_bits(words.hashes[place:place + count] + np.uint64((place + 1) * GOLDEN % 2**64))
        whole &= words.joined[place:place + count] if place else True
    return total, whole


def read_blocks(store: TokenStore, special: Ints, marks: Ints) -> Iterator[tuple[int, Words]]:
    """Read a store piece by piece, cut before a word. Gives where each piece begins, and its words."""
    begin, total = 0, len(store.tokens)
    while begin < total:
        end = min(begin + BLOCK, total)
        tokens = store.read(slice(begin, end))
        borders = np.zeros(len(tokens), dtype=bool)
        inner = store.offsets[np.searchsorted(store.offsets, begin):np.searchsorted(store.offsets, end)]
        borders[inner - begin] = True
        words = find_words(tokens, ~np.isin(tokens, special), borders, marks)
        if end < total and len(words.begin) > 1:  # the last word may go on
            end = begin + int(words.begin[-1])
            words = Words(words.hashes[:-1], words.begin[:-1], words.end[:-1], words.joined[:-1])
        yield begin, words
        begin = end


def count_block(words: Words, length: int, start: int) -> Table:
    """Count the n-grams of one piece."""
    hashes, whole = hash_word_runs(words, length)
    kept = whole.nonzero()[0]
    shorter = hash_word_runs(words, length - 1)[0] if length > 1 else np.zeros(len(words.hashes) + 1, dtype=np.uint64)
    found, first, counts = np.unique(hashes[kept], return_index=True, return_counts=True)
    place = kept[first]
    return Table(found, counts.astype(np.int64), start + words.begin[place], start + words.end[place + length - 1],
                 shorter[place], shorter[place + 1], int(counts.sum()))


def merge_tables(one: Table, other: Table) -> Table:
    """Add up two tables; where there is too much to remember, the rarest are forgotten."""
    both = {name: np.concatenate([getattr(one, name), getattr(other, name)])
            for name in ("hashes", "counts", "first", "last", "prefix", "suffix")}
    hashes, index, inverse = np.unique(both["hashes"], return_index=True, return_inverse=True)
    counts = np.bincount(inverse, weights=both["counts"], minlength=len(hashes)).astype(np.int64)
    rest = {name: both[name][index] for name in ("first", "last", "prefix", "suffix")}
    whole = Table(hashes, counts, **rest, total=one.total + other.total, forgotten=one.forgotten + other.forgotten)
    if len(hashes) <= MOST:
        return whole
    limit = np.partition(counts, len(counts) - MOST)[len(counts) - MOST]
    kept = whole.pick(counts > limit)
    return replace(kept, forgotten=whole.forgotten + len(hashes) - len(kept.hashes))


def count_n_grams(store: TokenStore, special: Ints, marks: Ints, longest: int) -> list[Table]:
    """Count the n-grams of every length up to `longest`; the first table is that of single words."""
    tables: list[Table] = []
    for start, words in read_blocks(store, special, marks):
        found = [count_block(words, length, start) for length in range(1, longest + 1)]
        tables = [merge_tables(one, other) for one, other in zip(tables, found, strict=True)] if tables else found
    return tables


def measure_n_grams(tables: list[Table]) -> list[NDArray[np.float64]]:
    """Return PMI_n of every n-gram: the least, over all ways to cut it, of log p(whole) - sum of log p(pieces).

    Source: Levine et al. 2021, §3, eq. 2, arXiv:2010.01825. The first entry is for single words, and has no meaning.
    """
    likely = [np.log(table.counts / max(1, table.total)) for table in tables]
    best, found = [likely[0]], [np.zeros(len(likely[0]))]
    for length in range(2, len(tables) + 1):
        cuts = [best[cut - 1][left] + best[length - cut - 1][right]
                for cut in range(1, length) for left, right in [split_n_grams(tables, length, cut)]]
        parts = np.max(cuts, axis=0)
        found.append(likely[length - 1] - parts)
        best.append(np.maximum(likely[length - 1], parts))
    return found


def split_n_grams(tables: list[Table], length: int, cut: int) -> tuple[Ints, Ints]:
    """Return the numbers, in their tables, of the first `cut` words and of the rest. Shapes: [N], [N]."""
    left = right = np.arange(len(tables[length - 1].hashes))
    for shorter in range(length - 1, cut - 1, -1):
        left = np.searchsorted(tables[shorter - 1].hashes, tables[shorter].prefix[left])
    for shorter in range(length - 1, length - cut - 1, -1):
        right = np.searchsorted(tables[shorter - 1].hashes, tables[shorter].suffix[right])
    return left, right


def keep_frequent(tables: list[Table], least: int) -> list[Table]:
    """Keep what occurs often enough, and whose parts were not forgotten."""
    kept = [tables[0].pick(tables[0].counts >= least)]
    for table in tables[1:]:
        known = kept[-1].hashes
        kept.append(table.pick((table.counts >= least) & np.isin(table.prefix, known) & np.isin(table.suffix, known)))
    return kept


def find_collocations(store: TokenStore, special: Ints, marks: Ints, *, longest: int, least: int,
                      each: int) -> Iterator[Collocation]:
    """Yield the n-grams whose words come together more often than any of their parts would, the best first.

    Those of two words come first, then those of three, ... up to `longest`; at most `each` of each length, and none
    that occurs less than `least` times.
    """
    tables = keep_frequent(count_n_grams(store, special, marks, longest), least)
    for words, (table, measure) in enumerate(zip(tables, measure_n_grams(tables), strict=True), start=1):
        order = np.lexsort((table.first, -measure)) if words > 1 else np.zeros(0, dtype=np.int64)
        for number in order[measure[order] > 0][:each].tolist():
            ids = tuple(store.tokens[table.first[number]:table.last[number]].tolist())
            yield Collocation(ids, words, int(table.counts[number]), float(measure[number]))
