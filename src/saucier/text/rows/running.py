"""Batches of running text: shuffled rows of one length, rows that continue from step to step, rows of whole documents.

Documents of one row carry different numbers, so that no attention crosses them, and positions start again. Axes: B
rows, L positions of a row, N pieces.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from saucier.errors import InputError
from saucier.text.rows.batch import (
    PADDING,
    Batches,
    DrawnRows,
    Evaluation,
    Ints,
    PackedTexts,
    Rows,
    ShuffledBatches,
    make_generator,
    mark_members,
    pack_texts,
    scale_batch,
    take_share,
)
from saucier.text.rows.store import TokenStore


class PackedBatches(ShuffledBatches):
    """Endless shuffled rows of a store, without padding.

    Every epoch moves the row borders (by a random shift, the text taken as a ring) and shuffles the rows, so that
    every token comes exactly once, but for the last row, which reads over the end into the beginning.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0,
                 shift: bool = True) -> None:
        """Cut `store` into rows of `length` tokens, `batch` of them for each step.

        `overlap`: tokens of the next row are added to each; with 1 (causal language models) every token is a
        target once. `shift`: off keeps the row borders the same in all epochs (static masks).
        """
        super().__init__(-(-len(store.tokens) // length), batch=batch, seed=seed)
        self._store, self._length, self._overlap, self._shift = store, length, overlap, shift

    @property
    def counts(self) -> dict[str, int]:
        """Rows and tokens of an epoch; `repeated`: tokens of the last row that are read twice in an epoch."""
        tokens = len(self._store.tokens)
        return {"rows": self._count, "tokens": tokens, "documents": len(self._store), "length": self._length,
                "padding": 0, "repeated": self._count * self._length - tokens}

    def read_rows(self, drawn: DrawnRows) -> Rows:
        """Cut the rows that were drawn."""
        shifts = np.array([make_generator(self._seed, int(epoch), 1).integers(self._length) if self._shift else 0
                           for epoch in drawn.epochs], dtype=np.int64)
        starts = shifts + drawn.items * self._length
        places = starts[:, None] + np.arange(self._length + self._overlap)
        return cut_rows(self._store, places, context=np.full(len(starts), self._overlap), row=drawn.numbers,
                        item=drawn.items)


class PackedEvaluation(Evaluation[Rows]):
    """The rows of a store in their order, every token a target exactly once.

    With a `stride` below `length` the rows overlap, so that each target has `length - stride` tokens before it at least
    (nearer to what the model can do, and costlier: length / stride times the work).
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

    @property
    def steps_per_epoch(self) -> int:
        """How many batches there are."""
        return -(-self._count // self._batch)

    @property
    def counts(self) -> dict[str, int]:
        """Rows, tokens, and padding of the last row."""
        tokens = len(self._store.tokens)
        covered = (self._count - 1) * self._stride + self._width
        return {"rows": self._count, "tokens": tokens, "documents": len(self._store), "padding": covered - tokens}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(min(self._batch, self._count - step * self._batch))
        numbers = numbers[take_share(len(numbers), rank, world)]
        items = step * self._batch + numbers
        places = items[:, None] * self._stride + np.arange(self._width)
        context = np.where(items == 0, 0, self._width - self._stride)
        return cut_rows(self._store, places, context=context, row=numbers, item=items, ring=False)


def cut_rows(store: TokenStore, places: Ints, *, context: Ints, row: Ints, item: Ints, ring: bool = True) -> Rows:
    """Read the tokens at `places`; after the end comes the beginning again (`ring`), or padding.

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
                row=row, item=item, sentence_starts=mark_members(inside, store.sentences) & ~padding
                if len(store.sentences) else None)


def number_documents(document: Ints) -> tuple[Ints, Ints]:
    """Number the documents of each row from 0, and the positions inside each from 0.

    Shapes: document [B, L], any number that changes where a document starts; gives two of [B, L].
    """
    first = np.ones((len(document), 1), dtype=bool)
    starts = np.concatenate([first, document[:, 1:] != document[:, :-1]], axis=1)
    place = np.arange(document.shape[1])
    begin = np.maximum.accumulate(np.where(starts, place, 0), axis=1)
    return np.cumsum(starts, axis=1) - 1, place - begin


class ConsecutiveBatches(Batches[Rows]):
    """Endless rows of a store, each a piece of the stretch that its number in the batch reads.

    Every epoch shifts the text, taken as a ring, at random; all stretches begin again. What is read at a step is
    a pure function of (seed, step). Source: Dai et al. 2019, code release (an ordered iterator), which does not
    shift.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0) -> None:
        """Cut `store` into `batch` stretches, and each into pieces of `length` tokens.

        `overlap`: tokens of the next piece are added to each; with 1 every token is a target once.
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
        numbers = np.arange(self._batch)[take_share(self._batch, rank, world)]
        epoch, piece = divmod(step, self._pieces)
        shift = int(make_generator(self._seed, epoch, 1).integers(len(self._store.tokens)))
        items = numbers * self._pieces + piece
        places = shift + items[:, None] * self._length + np.arange(self._length + self._overlap)
        found = cut_rows(self._store, places, context=np.full(len(items), self._overlap), row=numbers, item=items)
        return replace(found, continues=np.full(len(items), piece > 0))


class ConsecutiveEvaluation(Evaluation[Rows]):
    """The pieces of a store in their order, every token a target exactly once.

    All stretches but the first begin with pieces that are no targets, the end of the stretch before, so that a memory
    is full where the first target comes. One stretch (`batch` 1) is the text from end to end.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, overlap: int = 0, before: int = 0) -> None:
        """Cut `store` into at most `batch` stretches, all but the first after `before` tokens that are only read."""
        self._store, self._length, self._overlap = store, length, overlap
        self._context_pieces = -(-before // length)
        self._pieces = max(1, -(-(len(store.tokens) - overlap) // length))
        self._rows = min(batch, max(1, self._pieces // (self._context_pieces + 1)))
        self._target_pieces = -(-(self._pieces - self._context_pieces) // self._rows)
        """Pieces of a stretch that are targets, but for the first stretch, whose pieces all are."""

    @property
    def steps_per_epoch(self) -> int:
        """How many batches there are."""
        return min(self._pieces, self._target_pieces + self._context_pieces)

    @property
    def counts(self) -> dict[str, int]:
        """Rows, tokens, and tokens that are read more than once."""
        return {"rows": len(self) * self._rows, "tokens": len(self._store.tokens), "documents": len(self._store),
                "repeated": (self._rows - 1) * self._context_pieces * self._length}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(self._rows)[take_share(self._rows, rank, world)]
        items: Ints = numbers * self._target_pieces + step
        places = items[:, None] * self._length + np.arange(self._length + self._overlap)
        only_read = (numbers > 0) & (step < self._context_pieces)
        context = np.where(only_read, places.shape[1], np.where(items > 0, self._overlap, 0))
        found = cut_rows(self._store, places, context=context, row=numbers, item=items, ring=False)
        return replace(found, continues=np.full(len(items), step > 0))


class DocumentBatches(ShuffledBatches):
    """Endless rows of a store that begin with a document and end with one, shuffled again in every epoch.

    What a row has left is padded. A document that is longer than a row is divided: into rows that are full, and a rest
    that may share one. Source: Ding et al. 2024, §2, arXiv:2404.10830.
    """

    def __init__(self, store: TokenStore, *, length: int, batch: int, seed: int = 0, overlap: int = 0) -> None:
        """Pack `store` into rows of `length` + `overlap` tokens.

        `batch`: rows, if all were full; there are more of them where they are not. `overlap`: tokens of a
        divided document's next piece are added to each; with 1 every token but a document's first is a target once.
        """
        self._store, self._length, self._overlap = store, length, overlap
        pieces = -(-np.maximum(store.lengths - overlap, np.minimum(store.lengths, 1)) // length)
        number = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self._starts = np.repeat(store.offsets[:-1], pieces) + number * length
        self._sizes = np.minimum(np.repeat(store.offsets[1:], pieces) - self._starts, length + overlap)
        self._divided = int((pieces > 1).sum())
        self._bins = pack_texts(self._sizes[:, None], length + overlap)
        rows = len(self._bins)
        super().__init__(rows, batch=scale_batch(batch, length + overlap, int(self._sizes.sum()), rows), seed=seed)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, tokens and padding, and how many documents are `divided`.

        `repeated`: tokens that end a piece of a divided document and begin the next.
        """
        places, filled = len(self._bins) * (self._length + self._overlap), int(self._sizes.sum())
        return {"rows": len(self._bins), "batch": self._batch, "tokens": len(self._store.tokens),
                "documents": len(self._store), "length": self._length, "divided": self._divided,
                "repeated": filled - len(self._store.tokens), "padding": places - filled}

    def read_rows(self, drawn: DrawnRows) -> Rows:
        """Read the rows that were drawn."""
        bins = [self._bins[item] for item in drawn.items]
        shared = PackedTexts.of(bins, self._sizes)
        places = np.where(shared.mask, self._starts[shared.text] + shared.place, 0)
        tokens = np.where(shared.mask, self._store.read(places), 0)
        first = np.diff(shared.text, axis=1, prepend=shared.text[:, :1]) != 0
        return Rows(tokens=tokens, documents=np.where(shared.mask, np.cumsum(first, axis=1), PADDING),
                    positions=shared.place, segments=np.zeros_like(tokens),
                    context=np.full(len(bins), self._overlap, dtype=np.int64),
                    sentence_label=np.zeros(len(bins), dtype=np.int64), row=drawn.numbers, item=drawn.items,
                    sentence_starts=mark_members(places, self._store.sentences) & shared.mask
                    if len(self._store.sentences) else None)


class DocumentEvaluation(Evaluation[Rows], DocumentBatches):
    """Every row of a store once, in one order."""

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(min(self._batch, self._count - step * self._batch))
        mine = numbers[take_share(len(numbers), rank, world)]
        return self.read_rows(DrawnRows(mine, np.zeros_like(mine), step * self._batch + mine, step))
