"""Rows that go on from step to step: `ConsecutiveRows` to train on, `ConsecutiveEvaluation` to measure with.

The text is cut into as many stretches as a batch has rows. Row b of every batch reads stretch b, a piece at each step,
so that a model with a memory finds in it what stood before. Axes: B rows, L positions of a row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from saucier.text.packed import cut_rows
from saucier.text.rows import Ints, Rows, generator, share
from saucier.text.store import TokenStore


class ConsecutiveRows:
    """Endless rows of a store, each a piece of the stretch that its number in the batch reads.

    Every epoch turns the text, taken as a ring, by a random shift, and all stretches begin anew. What is read at a step
    is a pure function of (seed, step). Source: Dai et al. 2019, code release (an ordered iterator), which does not
    shift.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0) -> None:
        """Cut `store` into `batch` stretches, and each into pieces of `length` tokens.

        `overlap`: so many tokens of the next piece are added to each; with 1 every token is a target once.
        """
        self._store, self._length, self._batch, self._seed, self._overlap = store, length, batch, seed, overlap
        self._pieces = -(-len(store.tokens) // (length * batch))

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once: the pieces of a stretch (rounded up)."""
        return self._pieces

    @property
    def counts(self) -> dict[str, int]:
        """Rows and tokens of an epoch; `repeated`: tokens that the last stretch reads again from the beginning."""
        tokens, rows = len(self._store.tokens), self._pieces * self._batch
        return {"rows": rows, "tokens": tokens, "documents": len(self._store), "length": self._length, "padding": 0,
                "repeated": rows * self._length - tokens}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on: the same stretches at every step."""
        numbers = np.arange(self._batch)[share(self._batch, rank, world)]
        epoch, piece = divmod(step, self._pieces)
        shift = int(generator(self._seed, epoch, 1).integers(len(self._store.tokens)))
        items = numbers * self._pieces + piece
        places = shift + items[:, None] * self._length + np.arange(self._length + self._overlap)
        found = cut_rows(self._store, places, context=np.full(len(items), self._overlap), row=numbers, item=items)
        return replace(found, continues=np.full(len(items), piece > 0))

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)


class ConsecutiveEvaluation:
    """The pieces of a store in their order, every token a target exactly once; batches are counted by `len`.

    All stretches but the first begin with pieces that are no targets, the end of the stretch before, so that a memory
    is full where the first target comes. One stretch (`batch` 1) is the text from end to end.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, overlap: int = 0, before: int = 0) -> None:
        """Cut `store` into at most `batch` stretches, all but the first after `before` tokens that are only read."""
        self._store, self._length, self._overlap = store, length, overlap
        self._warm = -(-before // length)
        self._pieces = max(1, -(-(len(store.tokens) - overlap) // length))
        self._rows = min(batch, max(1, self._pieces // (self._warm + 1)))
        self._own = -(-(self._pieces - self._warm) // self._rows)
        """Pieces of a stretch that are targets, but for the first stretch, whose pieces all are."""

    def __len__(self) -> int:
        return min(self._pieces, self._own + self._warm)

    @property
    def counts(self) -> dict[str, int]:
        """Rows, tokens, and tokens that are read more than once."""
        return {"rows": len(self) * self._rows, "tokens": len(self._store.tokens), "documents": len(self._store),
                "repeated": (self._rows - 1) * self._warm * self._length}

    def __getitem__(self, step: int) -> Rows:
        """Give one whole batch."""
        if not 0 <= step < len(self):
            raise IndexError(step)
        numbers = np.arange(self._rows)
        items: Ints = numbers * self._own + step
        places = items[:, None] * self._length + np.arange(self._length + self._overlap)
        only_read = (numbers > 0) & (step < self._warm)
        context = np.where(only_read, places.shape[1], np.where(items > 0, self._overlap, 0))
        found = cut_rows(self._store, places, context=context, row=numbers, item=items, ring=False)
        return replace(found, continues=np.full(len(items), step > 0))
