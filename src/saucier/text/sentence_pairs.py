"""`SentencePairs`: two spans of text for next-sentence prediction; half of the time the second follows the first.

Axes: B rows, L positions, U units (sentences, long ones cut), C chunks (runs of units that fill a row).
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from saucier.errors import InputError
from saucier.text.bucketed import text_rows
from saucier.text.rows import Ints, Rows, generator, picked, share
from saucier.text.store import TokenStore

SPECIAL = 3
"""Places of a row that [CLS] and two [SEP] take."""


class SentencePairs:
    """Endless rows `[CLS] A [SEP] B [SEP]`, a chunk of a document each, shuffled anew in every epoch.

    Where B is drawn at random, what followed A in its chunk waits for another epoch (BERT's script puts it into the
    next row).
    Source: Devlin et al. 2019, §3.1 and appendix A.2, arXiv:1810.04805.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, cls: int, sep: int, seed: int = 0,
                 random_next: float = 0.5, short: float = 0.1) -> None:
        """Pair the sentences of `store` (written with `sentences=True`) into rows of at most `length` tokens.

        `random_next`: how often B comes from another document (always, where a chunk is a single sentence).
        `short`: how often a row is cut to a random length, so that short inputs are learned, too.
        Errors: `InputError` for a store of one document, and for a length below 8.
        """
        if len(store) < 2:
            raise InputError("next-sentence prediction needs two documents or more", where="data",
                             remedy="split the text: data.document=paragraph, or use objective.next_sentence=null")
        if length < 8:
            raise InputError(f"a length of {length} holds no pair of sentences", where="training.length",
                             remedy="use 8 or more")
        self._store, self._room, self._batch, self._seed = store, length - SPECIAL, batch, seed
        self._cls, self._sep, self._random_next, self._short = cls, sep, random_next, short
        self._units = _units(store, self._room // 2)
        self._document_units = np.searchsorted(self._units, store.offsets)
        self._chunks = _chunks(self._units, self._document_units, self._room)
        self._filled = np.flatnonzero(np.diff(self._document_units))
        self._order = functools.lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, epoch: int) -> Ints:
        return generator(self._seed, epoch).permutation(len(self._chunks))

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""
        return -(-len(self._chunks) // self._batch)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch, and the documents, tokens and units (sentences, long ones cut) that they are made from."""
        alone = int((self._chunks[:, 1] - self._chunks[:, 0] == 1).sum())
        return {"rows": len(self._chunks), "documents": len(self._store), "tokens": len(self._store.tokens),
                "units": len(self._units) - 1, "single": alone}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(self._batch)[share(self._batch, rank, world)]
        epochs, slots = np.divmod(step * self._batch + numbers, len(self._chunks))
        items = picked(self._order, epochs, slots)
        made = [self._row(int(item), generator(self._seed, step, int(number), 2))
                for item, number in zip(items, numbers, strict=True)]
        return self._padded(made, numbers, items)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)

    def _row(self, chunk: int, random: np.random.Generator) -> tuple[Ints, Ints, bool]:
        """Draw one pair. Gives A, B and whether B is random."""
        first, last = self._chunks[chunk]
        room = int(random.integers(2, self._room + 1)) if random.random() < self._short else self._room
        split = int(random.integers(first + 1, last)) if last - first > 1 else int(last)
        is_random = last - first == 1 or random.random() < self._random_next
        first_text = self._read(first, split)
        second_text = self._random_text(int(first), room - min(len(first_text), room // 2), random) if is_random \
            else self._read(split, last)
        return *_fit(first_text, second_text, room, random), bool(is_random)

    def _read(self, first: int, last: int) -> Ints:
        return np.asarray(self._store.tokens[self._units[first]:self._units[last]], dtype=np.int64)

    def _random_text(self, unit: int, room: int, random: np.random.Generator) -> Ints:
        """Read whole sentences, about `room` tokens of them, from a random place of another document."""
        own = int(np.searchsorted(self._document_units, unit, side="right")) - 1
        other = int(random.choice(self._filled[self._filled != own]))
        first = int(random.integers(self._document_units[other], self._document_units[other + 1]))
        return self._read(first, _last_unit(self._units, first, int(self._document_units[other + 1]), room))

    def _padded(self, made: list[tuple[Ints, Ints, bool]], row: Ints, item: Ints) -> Rows:
        lengths = np.array([len(first) + len(second) + SPECIAL for first, second, _ in made], dtype=np.int64)
        tokens = np.zeros((len(made), int(lengths.max(initial=1))), dtype=np.int64)
        segments = np.zeros_like(tokens)
        for number, (first, second, _) in enumerate(made):
            text = np.concatenate([[self._cls], first, [self._sep], second, [self._sep]])
            tokens[number, :len(text)] = text
            segments[number, len(first) + 2:len(text)] = 1
        rows = text_rows(tokens, lengths, row=row, item=item)
        is_random = np.array([drawn for *_, drawn in made], dtype=np.int64)
        return replace(rows, segments=segments, sentence_label=is_random)


def _units(store: TokenStore, longest: int) -> Ints:
    """Give where units start: at documents and sentences, and inside sentences longer than `longest`. Gives [U + 1]."""
    marks = np.union1d(store.offsets, store.sentences)
    sizes = np.diff(marks)
    pieces = -(-sizes // longest)
    within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(np.repeat(marks[:-1], pieces) + within * longest, marks[-1])


def _chunks(units: Ints, document_units: Ints, room: int) -> Ints:
    """Fill rows greedily with the units of one document after another. Gives (first, last) units, [C, 2]."""
    chunks = []
    for first, last in zip(document_units[:-1].tolist(), document_units[1:].tolist(), strict=True):
        while first < last:
            end = _last_unit(units, first, last, room)
            chunks.append((first, end))
            first = end
    return np.array(chunks, dtype=np.int64).reshape(-1, 2)


def _last_unit(units: Ints, first: int, last: int, room: int) -> int:
    """Find the end of the units from `first` on that fit into `room`: one unit at least, and none from `last` on."""
    return min(max(int(np.searchsorted(units, units[first] + room, side="right")) - 1, first + 1), last)


def _fit(first: Ints, second: Ints, room: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Shorten the longer of two texts, at its front or its back, until both fit and neither is empty."""
    while (over := len(first) + len(second) - room) > 0:
        cut = max(1, min(over, abs(len(first) - len(second))))
        front = random.random() < 0.5
        if len(first) > len(second):
            first = first[cut:] if front else first[:-cut]
        else:
            second = second[cut:] if front else second[:-cut]
    return first, second
