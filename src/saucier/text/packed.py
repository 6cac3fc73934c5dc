"""Rows of one length cut from running text: `PackedRows` to train on, `EvaluationRows` to measure with.

A row may hold several documents; they carry different numbers, so that no attention crosses them, and positions start
anew.
Axes: B rows, L positions of a row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.text.rows import PADDING, DrawnOrder, Ints, Rows, generator, share
from saucier.text.store import TokenStore


class PackedRows:
    """Endless shuffled rows of a store, without padding.

    Every epoch lays the row borders anew (by a random shift, the text taken as a ring) and shuffles the rows, so that
    every token comes exactly once, but for the last row, which reads over the end into the beginning.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0,
                 shift: bool = True) -> None:
        """Cut `store` into rows of `length` tokens, `batch` of them for each step.

        `overlap`: so many tokens of the next row are added to each; with 1 (causal language models) every token is a
        target once. `shift`: off keeps the row borders the same in all epochs (static masks).
        """
        self._store, self._length, self._seed, self._overlap, self._shift = store, length, seed, overlap, shift
        self._per_epoch = -(-len(store.tokens) // length)
        self._order = DrawnOrder(self._per_epoch, batch=batch, seed=seed)

    def _start(self, epoch: int) -> int:
        return int(generator(self._seed, epoch, 1).integers(self._length)) if self._shift else 0

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""
        return self._order.steps_per_epoch

    @property
    def counts(self) -> dict[str, int]:
        """Rows and tokens of an epoch; `repeated`: tokens of the last row that are read twice in an epoch."""
        tokens = len(self._store.tokens)
        return {"rows": self._per_epoch, "tokens": tokens, "documents": len(self._store), "length": self._length,
                "padding": 0, "repeated": self._per_epoch * self._length - tokens}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        draw = self._order.draw(step, rank, world)
        shifts = np.array([self._start(int(epoch)) for epoch in draw.epochs], dtype=np.int64)
        starts = shifts + draw.items * self._length
        places = starts[:, None] + np.arange(self._length + self._overlap)
        return cut_rows(self._store, places, context=np.full(len(starts), self._overlap), row=draw.numbers,
                        item=draw.items)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)


class EvaluationRows:
    """The rows of a store in their order, every token a target exactly once; batches are counted by `len`.

    With a `stride` below `length` the rows overlap, so that each target has `length - stride` tokens before it at least
    (nearer to what the model can do, and dearer: length / stride times the work).
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, overlap: int = 0,
                 stride: int | None = None) -> None:
        """Cut `store` into rows of `length` + `overlap` tokens, each `stride` (default: `length`) after the last."""
        self._store, self._batch, self._stride = store, batch, stride or length
        self._width = length + overlap
        if not 0 < self._stride <= length:
            raise InputError(f"stride {stride} is not between 1 and the length {length}", where="evaluation.stride",
                             remedy=f"choose {length} or less")
        self._count = 1 + max(0, -(-(len(store.tokens) - self._width) // self._stride))

    def __len__(self) -> int:
        return -(-self._count // self._batch)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches there are."""
        return len(self)

    @property
    def counts(self) -> dict[str, int]:
        """Rows, tokens, and padding of the last row."""
        tokens = len(self._store.tokens)
        covered = (self._count - 1) * self._stride + self._width
        return {"rows": self._count, "tokens": tokens, "documents": len(self._store), "padding": covered - tokens}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(min(self._batch, self._count - step * self._batch))
        numbers = numbers[share(len(numbers), rank, world)]
        items = step * self._batch + numbers
        places = items[:, None] * self._stride + np.arange(self._width)
        context = np.where(items == 0, 0, self._width - self._stride)
        return cut_rows(self._store, places, context=context, row=numbers, item=items, ring=False)

    def __getitem__(self, step: int) -> Rows:
        """Give one whole batch."""
        if not 0 <= step < len(self):
            raise IndexError(step)
        return self.rows(step)

    def __iter__(self) -> Iterator[Rows]:
        return (self.rows(step) for step in range(len(self)))


def cut_rows(store: TokenStore, places: Ints, *, context: Ints, row: Ints, item: Ints, ring: bool = True) -> Rows:
    """Read the tokens at `places`; what lies beyond the end is the beginning again (`ring`), or padding.

    Shapes: places [B, L]; context, row, item [B].
    """
    total = len(store.tokens)
    rounds, inside = np.divmod(places, total)
    padding = np.zeros_like(places, dtype=bool) if ring else rounds > 0
    document = np.searchsorted(store.offsets[1:], inside, side="right") + rounds * len(store)
    tokens = np.where(padding, 0, store.read(inside))
    documents, positions = number_documents(document)
    return Rows(tokens=tokens, documents=np.where(padding, PADDING, documents),
                positions=np.where(padding, 0, positions), segments=np.zeros_like(tokens),
                context=context.astype(np.int64), sentence_label=np.zeros(len(places), dtype=np.int64),
                row=row, item=item, sentence_starts=among(inside, store.sentences) & ~padding
                if len(store.sentences) else None)


def among(places: Ints, marks: Ints) -> NDArray[np.bool_]:
    """Say which places are marked; `marks` grow, and a large list of them stays on the disk. Shapes: [B, L] -> same."""
    found = np.searchsorted(marks, places)
    return np.equal(marks[np.minimum(found, len(marks) - 1)], places)


def number_documents(document: Ints) -> tuple[Ints, Ints]:
    """Number the documents of each row from 0, and the positions inside each from 0.

    Shapes: document [B, L], any number that changes where a document starts; gives two of [B, L].
    """
    first = np.ones((len(document), 1), dtype=bool)
    starts = np.concatenate([first, document[:, 1:] != document[:, :-1]], axis=1)
    place = np.arange(document.shape[1])
    begin = np.maximum.accumulate(np.where(starts, place, 0), axis=1)
    return np.cumsum(starts, axis=1) - 1, place - begin
