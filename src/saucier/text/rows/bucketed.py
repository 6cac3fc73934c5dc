"""Bucketed batches: one text (or pair) in a row, with others of about its length, so that little is padded.

Texts are sorted by length with ties in random order, cut into batches, and the batches shuffled: the number of
batches is the same in every epoch. Axes: B rows, L positions, S source, T target positions, N texts of the store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.text.rows.batch import (
    PADDING,
    Batches,
    Evaluation,
    Ints,
    PairRows,
    R_co,
    Rows,
    make_generator,
    pad_ids,
    take_share,
)
from saucier.text.rows.store import PairStore, TokenStore


@dataclass(frozen=True, slots=True)
class TextEnds:
    """How a text ends, and what comes after it."""

    last: int | None = None
    """The id of the token that ends a text: where a text that has it is cut, it stays at the end."""
    pad: int = 0
    """The id that fills a row up."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch and a text may be."""

    batch: int
    """Rows in a batch, at most."""
    tokens: int | None = None
    """Tokens in a batch with its padding, at most (the larger side, for pairs); none = no bound but `batch`."""
    length: int | None = None
    """Tokens in a text, at most; none = any length."""
    too_long: Literal["truncate", "drop"] = "truncate"
    """What happens to longer ones: cut, or left out. Either is counted."""
    ends: TextEnds = TextEnds()
    """How a text ends; of pairs, a source."""
    target_ends: TextEnds | None = None
    """How a target ends; None: as a source does."""


class LengthPlan:
    """Which texts make up which batch, in every epoch: those of about one length, or of one topic.

    Shapes: lengths [N, sides]; times [N], None: each text once; topics [N], None: they do not matter.
    """

    def __init__(self, lengths: Ints, limits: BatchLimits, seed: int, times: Ints | None = None,
                 topics: Ints | None = None) -> None:
        self._seed = seed
        cut = lengths if limits.length is None else np.minimum(lengths, limits.length)
        longer = (cut < lengths).any(axis=1)
        kept = ~longer if limits.too_long == "drop" else np.ones(len(lengths), dtype=bool)
        items = np.flatnonzero(kept)
        self._items = items if times is None else np.repeat(items, times[items])
        self._lengths = cut[self._items]
        self._keys = self._lengths.T[::-1] if topics is None else topics[self._items][None]
        if not len(self._items):
            raise InputError("every text is longer than the limit and is dropped", where="data",
                             remedy=f"raise the length of {limits.length}, or truncate")
        ordered = self._lengths[self.sort_texts(None)]
        self.borders = _cut_batches(ordered, limits)
        self.batches = len(self.borders) - 1
        """Batches of an epoch."""
        widths = np.maximum.reduceat(ordered, self.borders[:-1], axis=0)
        self.counts = {"rows": len(self._items), "batches": self.batches, "tokens": int(self._lengths.sum()),
                       "truncated": int((longer & kept).sum()), "dropped": int((longer & ~kept).sum()),
                       "tokens_cut": int((lengths - cut)[kept].sum()),
                       "padding": int((widths * np.diff(self.borders)[:, None]).sum() - ordered.sum())}
        self._epoch = functools.lru_cache(maxsize=2)(self._shuffle_epoch)

    def sort_texts(self, epoch: int | None) -> Ints:
        """Order the kept texts by length (first side first), or by topic; ties are drawn by epoch, or stay in order."""
        count = len(self._items)
        ties = np.arange(count) if epoch is None else make_generator(self._seed, epoch).permutation(count)
        return np.lexsort((ties, *self._keys))

    def _shuffle_epoch(self, epoch: int) -> tuple[Ints, Ints]:
        batches = make_generator(self._seed, epoch, 1).permutation(self.batches)
        return self._items[self.sort_texts(epoch)], batches

    def shuffled_batch(self, step: int) -> Ints:
        """Give the numbers of the texts of one batch, training order."""
        epoch, slot = divmod(step, self.batches)
        items, batches = self._epoch(epoch)
        return items[self.borders[batches[slot]]:self.borders[batches[slot] + 1]]

    def ordered_batch(self, step: int) -> Ints:
        """Give the numbers of the texts of one batch, shortest first, the same in all epochs."""
        items = self._items[self.sort_texts(None)]
        return items[self.borders[step]:self.borders[step + 1]]


def _cut_batches(lengths: Ints, limits: BatchLimits) -> Ints:
    """Cut sorted lengths greedily into batches that keep both limits; a batch has one text at least.

    Shapes: lengths [N, sides]; gives [batches + 1].
    """
    widest = lengths.max(axis=1).tolist()
    borders, width = [0], 0
    for number, length in enumerate(widest):
        rows = number - borders[-1]
        width = max(width, length)
        full = rows == limits.batch or (limits.tokens is not None and rows and width * (rows + 1) > limits.tokens)
        if full:
            borders.append(number)
            width = length
    return np.array([*borders, len(widest)], dtype=np.int64)


def pad_texts(store: TokenStore, items: Ints, length: int | None, ends: TextEnds) -> tuple[Ints, Ints]:
    """Read texts and fill them up to the longest. Shapes: items [B]; gives tokens [B, L] and lengths [B]."""
    return pad_ids([_cut(store.document(int(item)), length, ends) for item in items], ends.pad)


def _cut(text: Ints, length: int | None, ends: TextEnds) -> Ints:
    if length is None or len(text) <= length:
        return text
    ended = ends.last is not None and text[-1] == ends.last
    return np.concatenate([text[:length - 1], text[-1:]]) if ended else text[:length]


class BucketedBatches(Batches[R_co]):
    """Endless batches of a plan, in an order that depends on its seed."""

    def __init__(self, plan: LengthPlan, read: Callable[[Ints, Ints], R_co]) -> None:
        """Read batches with `read`, which gets the numbers of texts, and their rows in the whole batch: both [B]."""
        self._plan, self._read = plan, read

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once."""
        return self._plan.batches

    @property
    def counts(self) -> dict[str, int]:
        """Rows, batches, tokens, truncated and dropped texts, tokens cut off, padding (all sides together)."""
        return self._plan.counts

    def _items(self, step: int) -> Ints:
        return self._plan.shuffled_batch(step)

    def rows(self, step: int, rank: int = 0, world: int = 1) -> R_co:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        items = self._items(step)
        mine = take_share(len(items), rank, world)
        return self._read(items[mine], np.arange(len(items))[mine])


class BucketedTexts(BucketedBatches[Rows]):
    """Endless batches of single texts, each in a row of its own."""

    def __init__(self, store: TokenStore, limits: BatchLimits, *, seed: int = 0) -> None:
        """Plan batches over the documents of `store`. Errors: `InputError` where every text would be dropped."""
        def read(items: Ints, row: Ints) -> Rows:
            tokens, lengths = pad_texts(store, items, limits.length, limits.ends)
            return make_text_rows(tokens, lengths, row=row, item=items)

        super().__init__(LengthPlan(store.lengths[:, None], limits, seed), read)


def make_text_rows(tokens: Ints, lengths: Ints, *, row: Ints, item: Ints,
                   sentence_starts: NDArray[np.bool_] | None = None) -> Rows:
    """Make rows of one text each. Shapes: tokens, sentence_starts [B, L]; lengths, row, item [B]."""
    place = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    real, none = place < lengths[:, None], np.zeros(len(tokens), dtype=np.int64)
    return Rows(tokens=tokens, documents=np.where(real, 0, PADDING), positions=np.where(real, place, 0),
                segments=np.zeros_like(tokens), context=none, sentence_label=none, row=row, item=item,
                sentence_starts=sentence_starts)


class BucketedPairs(BucketedBatches[PairRows]):
    """Endless batches of pairs of about equal lengths. Source: Vaswani et al. 2017, §5.1, arXiv:1706.03762."""

    def __init__(self, store: PairStore, limits: BatchLimits, *, seed: int = 0, times: Ints | None = None) -> None:
        """Plan batches over the pairs of `store`, each of which comes `times` [N] in an epoch.

        Errors: `InputError` where every pair would be dropped.
        """
        lengths = np.stack([store.source.lengths, store.target.lengths], axis=1)
        super().__init__(LengthPlan(lengths, limits, seed, times), functools.partial(read_pairs, store, limits))


class PairEvaluation(Evaluation[PairRows], BucketedPairs):
    """Every pair of a store once, shortest first; `PairRows.item` tells which is which."""

    def _items(self, step: int) -> Ints:
        return self._plan.ordered_batch(step)


def read_pairs(store: PairStore, limits: BatchLimits, items: Ints, row: Ints) -> PairRows:
    """Read the pairs `items`, whose numbers in the whole batch are `row`. Shapes: items, row [B]."""
    source, source_lengths = pad_texts(store.source, items, limits.length, limits.ends)
    target, target_lengths = pad_texts(store.target, items, limits.length, limits.target_ends or limits.ends)
    return PairRows(source=source, target=target, source_lengths=source_lengths, target_lengths=target_lengths,
                    row=row, item=items)
