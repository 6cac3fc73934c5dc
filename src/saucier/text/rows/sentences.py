"""Batches of whole sentences: one or several sentences in a row, or two pieces of text whose relation is learned.

Axes: B rows, L positions, U units (sentences, long ones cut), C chunks (runs of units that fill a row).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from saucier.errors import InputError
from saucier.text.rows.batch import DrawnRows, Ints, Rows, ShuffledBatches, make_generator, pad_ids, scale_batch
from saucier.text.rows.bucketed import make_text_rows
from saucier.text.rows.kinds import RowKind, RowRequest
from saucier.text.rows.store import TokenStore


def find_units(store: TokenStore, longest: int) -> Ints:
    """Give where units start: at documents and sentences, and inside sentences longer than `longest`. Gives [U + 1]."""
    marks = np.union1d(store.offsets, store.sentences)
    sizes = np.diff(marks)
    pieces = -(-sizes // longest)
    within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(np.repeat(marks[:-1], pieces) + within * longest, marks[-1])


def fill_chunks(units: Ints, document_units: Ints, room: int) -> Ints:
    """Fill rows greedily with the units of one document after another. Gives (first, last) units, [C, 2]."""
    chunks = []
    for first, last in zip(document_units[:-1].tolist(), document_units[1:].tolist(), strict=True):
        while first < last:
            end = find_last_unit(units, first, last, room)
            chunks.append((first, end))
            first = end
    return np.array(chunks, dtype=np.int64).reshape(-1, 2)


def pair_units(document_units: Ints) -> Ints:
    """Take the units of each document two by two; a last one may stay alone. Gives (first, last) units, [C, 2]."""
    pairs = [(first, min(first + 2, last))
               for begin, last in zip(document_units[:-1].tolist(), document_units[1:].tolist(), strict=True)
               for first in range(begin, last, 2)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def find_last_unit(units: Ints, first: int, last: int, room: int) -> int:
    """Find the end of the units from `first` on that fit into `room`: one unit at least, and none from `last` on."""
    return min(max(int(np.searchsorted(units, units[first] + room, side="right")) - 1, first + 1), last)


SENTENCE_ROW_SPECIALS = 2
"""Places of a row that [CLS] and [SEP] take."""


class SentenceBatches(ShuffledBatches):
    """Endless rows `[CLS] sentences [SEP]`, shuffled again in every epoch; their borders stay.

    Rows that continue into the next document have a further [SEP] between both, and all of a row sees itself.
    Source: Liu et al. 2019, §4.2 and table 2, arXiv:1907.11692.
    """

    def __init__(self, store: TokenStore, request: RowRequest, *, length: int, batch: int, cls: int, sep: int,
                 seed: int = 0) -> None:
        """Cut `store` (written with `sentences=True`) into rows of at most `length` tokens.

        `batch`: rows, if all were full; there are more of them where they are not.
        Errors: `InputError` for a length below 8.
        """
        if length < 8:
            raise InputError(f"a length of {length} holds no sentence", where="training.length", remedy="use 8 or more")
        self._store, self._cls, self._sep = store, cls, sep
        self._units = find_units(store, length - SENTENCE_ROW_SPECIALS)
        self._chunks = self._cut(request.kind, length - SENTENCE_ROW_SPECIALS)
        sizes = self._units[self._chunks[:, 1]] - self._units[self._chunks[:, 0]] + SENTENCE_ROW_SPECIALS
        super().__init__(len(sizes), batch=scale_batch(batch, length, int(sizes.sum()), len(sizes)), seed=seed)

    def _cut(self, kind: RowKind, room: int) -> Ints:
        documents = np.searchsorted(self._units, self._store.offsets)
        if kind == "document_sentences":
            return fill_chunks(self._units, documents, room)
        before = np.searchsorted(np.unique(self._store.offsets)[1:], self._units, side="right")
        return fill_chunks(self._units + before, documents[[0, -1]], room)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, and the documents, tokens and units that they are made from."""
        return {"rows": len(self._chunks), "batch": self._batch, "documents": len(self._store),
                "tokens": len(self._store.tokens), "units": len(self._units) - 1}

    def read_rows(self, drawn: DrawnRows) -> Rows:
        """Read the rows that were drawn."""
        tokens, lengths = pad_ids([self._row(int(item)) for item in drawn.items], 0)
        return make_text_rows(tokens, lengths, row=drawn.numbers, item=drawn.items)

    def _row(self, chunk: int) -> Ints:
        """Read one row, with its special tokens."""
        begin, end = self._units[self._chunks[chunk]]
        offsets = self._store.offsets
        inner = np.unique(offsets[np.searchsorted(offsets, begin, side="right"):np.searchsorted(offsets, end)]) - begin
        text = np.insert(np.asarray(self._store.tokens[begin:end], dtype=np.int64), inner, self._sep)
        return np.concatenate([[self._cls], text, [self._sep]])


SENTENCE_PAIR_SPECIALS = 3
"""Places of a row that [CLS] and two [SEP] take."""


class SentencePairBatches(ShuffledBatches):
    """Endless rows `[CLS] A [SEP] B [SEP]`, a chunk of a document each, shuffled again in every epoch.

    The other rows have a piece of another document for B (next-sentence prediction), or A and B swapped (sentence
    order; Lan et al. 2020, §3.1, arXiv:1909.11942).

    Where B is drawn at random, what followed A in its chunk waits for another epoch (BERT's script puts it into the
    next row).
    Source: Devlin et al. 2019, §3.1 and appendix A.2, arXiv:1810.04805.
    """

    def __init__(self, store: TokenStore, request: RowRequest, *, length: int, batch: int, cls: int, sep: int,
                 seed: int = 0, where: str = "data") -> None:
        """Pair the sentences of `store` (written with `sentences=True`) into rows of at most `length` tokens.

        A second piece from elsewhere also comes after a chunk of a single sentence, always; where the pieces would be
        swapped, such chunks are left out.
        `batch`: rows, if all were full; there are more of them where they are two single sentences.
        `where`: the key path of the text, for errors.
        Errors: `InputError` for a store that has too few documents or sentences, and for a length below 8.
        """
        if length < 8:
            raise InputError(f"a length of {length} holds no pair of sentences", where="training.length",
                             remedy="use 8 or more")
        self._store, self._request, self._room, self._where = store, request, length - SENTENCE_PAIR_SPECIALS, where
        self._cls, self._sep, self._are_segments = cls, sep, request.kind == "segment_pairs"
        self._short = request.short if self._are_segments else 0.0
        self._units = find_units(store, self._room // 2)
        self._document_units = np.searchsorted(self._units, store.offsets)
        self._filled = np.flatnonzero(np.diff(self._document_units))
        self._chunks, self._single = self._cut()
        rows = len(self._chunks)
        sizes = self._units[self._chunks[:, 1]] - self._units[self._chunks[:, 0]] + SENTENCE_PAIR_SPECIALS
        super().__init__(rows, seed=seed, batch=batch if self._are_segments else
                         scale_batch(batch, length, int(sizes.sum()), rows))

    def _cut(self) -> tuple[Ints, int]:
        """Cut the chunks; count those of one sentence. Errors: as said above."""
        chunks = fill_chunks(self._units, self._document_units, self._room) if self._are_segments else \
            pair_units(self._document_units)
        two = chunks[:, 1] - chunks[:, 0] > 1
        if not two.any():
            raise InputError("no document has two sentences, which learning their relation needs", where=self._where,
                             remedy="give longer documents, or set objective.next_sentence and sentence_order to null")
        if self._request.wrong == "elsewhere" and len(self._filled) < 2:
            raise InputError("next-sentence prediction needs two documents or more", where=self._where,
                             remedy="split the text: data.document=paragraph, or use objective.next_sentence=null")
        return chunks[two] if self._request.wrong == "swapped" else chunks, int((~two).sum())

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, the documents, tokens and units (long sentences cut) of them.

        `single`: chunks of one unit; `left_out`: those of them that are not used.
        """
        return {"rows": len(self._chunks), "batch": self._batch, "documents": len(self._store),
                "tokens": len(self._store.tokens), "units": len(self._units) - 1, "single": self._single,
                "left_out": self._single if self._request.wrong == "swapped" else 0}

    def read_rows(self, drawn: DrawnRows) -> Rows:
        """Draw the pairs of rows, and read them."""
        pairs = [self._row(int(item), make_generator(self._seed, drawn.step, int(number), 2))
                for item, number in zip(drawn.items, drawn.numbers, strict=True)]
        tokens, lengths = pad_ids([np.concatenate([[self._cls], first, [self._sep], second, [self._sep]])
                                   for first, second, _ in pairs], 0)
        second_starts = np.array([[len(first) + 2] for first, *_ in pairs])
        place = np.arange(tokens.shape[1])
        segments = ((place >= second_starts) & (place < lengths[:, None])).astype(np.int64)
        rows = make_text_rows(tokens, lengths, row=drawn.numbers, item=drawn.items)
        is_random = np.array([is_wrong for *_, is_wrong in pairs], dtype=np.int64)
        return replace(rows, segments=segments, sentence_label=is_random)

    def _row(self, chunk: int, random: np.random.Generator) -> tuple[Ints, Ints, bool]:
        """Draw one pair. Gives A, B and whether B is a wrong one."""
        first, last = self._chunks[chunk]
        room = int(random.integers(2, self._room + 1)) if random.random() < self._short else self._room
        split = int(random.integers(first + 1, last)) if last - first > 1 else int(last)
        is_wrong = last - first == 1 or random.random() < 1 - self._request.real
        pieces = self._read(first, split), self._read(split, last)
        if is_wrong and self._request.wrong == "elsewhere":
            free = room - min(len(pieces[0]), room // 2) if self._are_segments else 0
            return *_shorten_pair(pieces[0], self._random_text(int(first), free, random), room, random), True
        kept = _shorten_pair(*pieces, room, random)
        return *(kept[::-1] if is_wrong else kept), is_wrong

    def _read(self, first: int, last: int) -> Ints:
        return np.asarray(self._store.tokens[self._units[first]:self._units[last]], dtype=np.int64)

    def _random_text(self, unit: int, room: int, random: np.random.Generator) -> Ints:
        """Read whole sentences, one at least and about `room` tokens, from a random place of another document."""
        own = int(np.searchsorted(self._document_units, unit, side="right")) - 1
        drawn = int(random.integers(len(self._filled) - 1))
        other = int(self._filled[drawn + int(drawn >= np.searchsorted(self._filled, own))])
        first = int(random.integers(self._document_units[other], self._document_units[other + 1]))
        return self._read(first, find_last_unit(self._units, first, int(self._document_units[other + 1]), room))


def _shorten_pair(first: Ints, second: Ints, room: int, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Shorten the longer of two texts, at its front or its back, until both fit and neither is empty."""
    while (over := len(first) + len(second) - room) > 0:
        cut = max(1, min(over, abs(len(first) - len(second))))
        front = random.random() < 0.5
        if len(first) > len(second):
            first = first[cut:] if front else first[:-cut]
        else:
            second = second[cut:] if front else second[:-cut]
    return first, second
