"""`SentenceRows`: rows of whole sentences, inside one document or on into the next.

Axes: B rows, L positions, U units (sentences, long ones cut), C chunks (runs of units that fill a row).
"""

from __future__ import annotations

import numpy as np

from saucier.errors import InputError
from saucier.text.bucketed import text_rows
from saucier.text.material import DocumentSentences, FullSentences, OnePiece
from saucier.text.rows import DrawnOrder, Ints, Rows
from saucier.text.sentences import chunks_of, more_rows, units_of
from saucier.text.store import TokenStore

SPECIAL = 2
"""Places of a row that [CLS] and [SEP] take."""


class SentenceRows:
    """Endless rows `[CLS] sentences [SEP]`, shuffled anew in every epoch; their borders stay.

    Rows that go on into the next document have a further [SEP] between both, and all of a row sees itself.
    Source: Liu et al. 2019, §4.2 and table 2, arXiv:1907.11692.
    """

    def __init__(self, store: TokenStore, kind: OnePiece, *, length: int, batch: int, cls: int, sep: int,
                 seed: int = 0) -> None:
        """Cut `store` (written with `sentences=True`) into rows of at most `length` tokens.

        `batch`: rows, if all were full; there are more of them where they are not.
        Errors: `InputError` for a length below 8.
        """
        if length < 8:
            raise InputError(f"a length of {length} holds no sentence", where="training.length", remedy="use 8 or more")
        self._store, self._cls, self._sep = store, cls, sep
        self._units = units_of(store, length - SPECIAL)
        self._chunks = self._cut(kind, length - SPECIAL)
        sizes = self._units[self._chunks[:, 1]] - self._units[self._chunks[:, 0]] + SPECIAL
        self._batch = more_rows(batch, length, int(sizes.sum()), len(sizes))
        self._order = DrawnOrder(len(self._chunks), batch=self._batch, seed=seed)

    def _cut(self, kind: OnePiece, room: int) -> Ints:
        documents = np.searchsorted(self._units, self._store.offsets)
        match kind:
            case DocumentSentences():
                return chunks_of(self._units, documents, room)
            case FullSentences():
                before = np.searchsorted(np.unique(self._store.offsets)[1:], self._units, side="right")
                return chunks_of(self._units + before, documents[[0, -1]], room)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""
        return self._order.steps_per_epoch

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, and the documents, tokens and units that they are made from."""
        return {"rows": len(self._chunks), "batch": self._batch, "documents": len(self._store),
                "tokens": len(self._store.tokens), "units": len(self._units) - 1}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        draw = self._order.draw(step, rank, world)
        made = [self._row(int(item)) for item in draw.items]
        lengths = np.array([len(one) for one in made], dtype=np.int64)
        tokens = np.zeros((len(made), int(lengths.max(initial=1))), dtype=np.int64)
        for number, one in enumerate(made):
            tokens[number, :len(one)] = one
        return text_rows(tokens, lengths, row=draw.numbers, item=draw.items)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)

    def _row(self, chunk: int) -> Ints:
        """Read one row, with its special tokens."""
        begin, end = self._units[self._chunks[chunk]]
        offsets = self._store.offsets
        inner = np.unique(offsets[np.searchsorted(offsets, begin, side="right"):np.searchsorted(offsets, end)]) - begin
        text = np.insert(np.asarray(self._store.tokens[begin:end], dtype=np.int64), inner, self._sep)
        return np.concatenate([[self._cls], text, [self._sep]])
