"""Rows of whole documents: `DocumentRows` to train on, `EvaluationDocuments` to measure with.

Several documents stand in a row where they fit, each as if it were alone. Axes: B rows, L positions, N pieces.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from saucier.text.packed import among
from saucier.text.rows import PADDING, DrawnOrder, Ints, Rows
from saucier.text.sentences import more_rows
from saucier.text.sharing import Shared, shared_bins
from saucier.text.store import TokenStore


class DocumentRows:
    """Endless rows of a store that begin with a document and end with one, shuffled anew in every epoch.

    What a row has left is padded. A document that is longer than a row is divided: into rows that are full, and a rest
    that may share one. Source: Ding et al. 2024, §2, arXiv:2404.10830.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0) -> None:
        """Lay `store` into rows of `length` + `overlap` tokens.

        `batch`: rows, if all were full; there are more of them where they are not. `overlap`: so many tokens of a
        divided document's next piece are added to each; with 1 every token but a document's first is a target once.
        """
        self._store, self._length, self._overlap = store, length, overlap
        pieces = -(-np.maximum(store.lengths - overlap, np.minimum(store.lengths, 1)) // length)
        number = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self._starts = np.repeat(store.offsets[:-1], pieces) + number * length
        self._sizes = np.minimum(np.repeat(store.offsets[1:], pieces) - self._starts, length + overlap)
        self._divided = int((pieces > 1).sum())
        self._bins = shared_bins(self._sizes[:, None], length + overlap)
        self._batch = more_rows(batch, length + overlap, int(self._sizes.sum()), len(self._bins))
        self._order = DrawnOrder(len(self._bins), batch=self._batch, seed=seed)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""
        return self._order.steps_per_epoch

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, tokens and padding, and how many documents are `divided`.

        `repeated`: tokens that end a piece of a divided document and begin the next.
        """
        places, filled = len(self._bins) * (self._length + self._overlap), int(self._sizes.sum())
        return {"rows": len(self._bins), "batch": self._batch, "tokens": len(self._store.tokens),
                "documents": len(self._store), "length": self._length, "divided": self._divided,
                "repeated": filled - len(self._store.tokens), "padding": places - filled}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        draw = self._order.draw(step, rank, world)
        return self._laid(draw.items, draw.numbers)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)

    def _laid(self, items: Ints, numbers: Ints) -> Rows:
        """Read the rows `items`. Shapes: items, numbers [B]."""
        bins = [self._bins[item] for item in items]
        shared = Shared.of(bins, self._sizes)
        places = np.where(shared.mask, self._starts[shared.text] + shared.place, 0)
        tokens = np.where(shared.mask, self._store.read(places), 0)
        first = np.diff(shared.text, axis=1, prepend=shared.text[:, :1]) != 0
        return Rows(tokens=tokens, documents=np.where(shared.mask, np.cumsum(first, axis=1), PADDING),
                    positions=shared.place, segments=np.zeros_like(tokens),
                    context=np.full(len(items), self._overlap, dtype=np.int64),
                    sentence_label=np.zeros(len(items), dtype=np.int64), row=numbers, item=items,
                    sentence_starts=among(places, self._store.sentences) & shared.mask
                    if len(self._store.sentences) else None)


class EvaluationDocuments(DocumentRows):
    """Every row of a store once, in one order; batches are counted by `len`."""

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __getitem__(self, step: int) -> Rows:
        """Give one whole batch; the last may have fewer rows."""
        if not 0 <= step < len(self):
            raise IndexError(step)
        items = np.arange(step * self._batch, min((step + 1) * self._batch, len(self._bins)))
        return self._laid(items, items - step * self._batch)

    def __iter__(self) -> Iterator[Rows]:
        return (self[step] for step in range(len(self)))
