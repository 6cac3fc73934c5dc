"""`SentencePairs`: two pieces of text whose relation is learned; a share of the time the second follows the first.

Axes: B rows, L positions, U units (sentences, long ones cut), C chunks (runs of units that fill a row).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from saucier.errors import InputError
from saucier.text.bucketed import text_rows
from saucier.text.material import Elsewhere, Swapped, TwoPieces, TwoSegments
from saucier.text.rows import DrawnOrder, Ints, Rows, generator
from saucier.text.sentences import chunks_of, couples_of, last_unit, more_rows, units_of
from saucier.text.store import TokenStore

SPECIAL = 3
"""Places of a row that [CLS] and two [SEP] take."""


class SentencePairs:
    """Endless rows `[CLS] A [SEP] B [SEP]`, a chunk of a document each, shuffled anew in every epoch.

    The other rows have a piece of another document for B (next-sentence prediction), or A and B swapped (sentence
    order; Lan et al. 2020, §3.1, arXiv:1909.11942).

    Where B is drawn at random, what followed A in its chunk waits for another epoch (BERT's script puts it into the
    next row).
    Source: Devlin et al. 2019, §3.1 and appendix A.2, arXiv:1810.04805.
    """

    def __init__(self, store: TokenStore, kind: TwoPieces, *, length: int, batch: int, cls: int, sep: int,
                 seed: int = 0, where: str = "data") -> None:
        """Pair the sentences of `store` (written with `sentences=True`) into rows of at most `length` tokens.

        A second piece from elsewhere also stands behind a chunk of a single sentence, always; where the pieces would be
        swapped, such chunks are left out.
        `batch`: rows, if all were full; there are more of them where they are two single sentences.
        `where`: the key path of the text, for errors.
        Errors: `InputError` for a store that has too few documents or sentences, and for a length below 8.
        """
        if length < 8:
            raise InputError(f"a length of {length} holds no pair of sentences", where="training.length",
                             remedy="use 8 or more")
        self._store, self._kind, self._room, self._seed = store, kind, length - SPECIAL, seed
        self._where = where
        self._cls, self._sep, self._short = cls, sep, kind.short if isinstance(kind, TwoSegments) else 0.0
        self._units = units_of(store, self._room // 2)
        self._document_units = np.searchsorted(self._units, store.offsets)
        self._filled = np.flatnonzero(np.diff(self._document_units))
        self._chunks, self._alone = self._cut()
        rows = len(self._chunks)
        self._batch = batch if isinstance(kind, TwoSegments) else more_rows(batch, length, self._size, rows)
        self._order = DrawnOrder(len(self._chunks), batch=self._batch, seed=seed)

    def _cut(self) -> tuple[Ints, int]:
        """Cut the chunks; count those of one sentence. Errors: as told above."""
        chunks = chunks_of(self._units, self._document_units, self._room) if isinstance(self._kind, TwoSegments) \
            else couples_of(self._document_units)
        two = chunks[:, 1] - chunks[:, 0] > 1
        if not two.any():
            raise InputError("no document has two sentences, which learning their relation needs", where=self._where,
                             remedy="give longer documents, or set objective.next_sentence and sentence_order to null")
        if isinstance(self._kind.wrong, Elsewhere) and len(self._filled) < 2:
            raise InputError("next-sentence prediction needs two documents or more", where=self._where,
                             remedy="split the text: data.document=paragraph, or use objective.next_sentence=null")
        return chunks[two] if isinstance(self._kind.wrong, Swapped) else chunks, int((~two).sum())

    @property
    def _size(self) -> int:
        """Tokens of all rows, special ones too, where every pair is the true one."""
        sizes = self._units[self._chunks[:, 1]] - self._units[self._chunks[:, 0]]
        return int(sizes.sum()) + SPECIAL * len(sizes)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""
        return self._order.steps_per_epoch

    @property
    def counts(self) -> dict[str, int]:
        """Rows of an epoch and of a batch, the documents, tokens and units (sentences, long ones cut) behind them.

        `single`: chunks of one unit; `left_out`: those of them that are not used.
        """
        return {"rows": len(self._chunks), "batch": self._batch, "documents": len(self._store),
                "tokens": len(self._store.tokens), "units": len(self._units) - 1, "single": self._alone,
                "left_out": self._alone if isinstance(self._kind.wrong, Swapped) else 0}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        draw = self._order.draw(step, rank, world)
        made = [self._row(int(item), generator(self._seed, step, int(number), 2))
                for item, number in zip(draw.items, draw.numbers, strict=True)]
        return self._padded(made, draw.numbers, draw.items)

    def __getitem__(self, step: int) -> Rows:
        """Give the whole batch of one step."""
        return self.rows(step)

    def _row(self, chunk: int, random: np.random.Generator) -> tuple[Ints, Ints, bool]:
        """Draw one pair. Gives A, B and whether B is a wrong one."""
        first, last = self._chunks[chunk]
        room = int(random.integers(2, self._room + 1)) if random.random() < self._short else self._room
        split = int(random.integers(first + 1, last)) if last - first > 1 else int(last)
        is_wrong = last - first == 1 or random.random() < 1 - self._kind.real
        pieces = self._read(first, split), self._read(split, last)
        match self._kind.wrong:
            case Elsewhere() if is_wrong:
                free = room - min(len(pieces[0]), room // 2) if isinstance(self._kind, TwoSegments) else 0
                return *_fit(pieces[0], self._random_text(int(first), free, random), room, random), True
            case Swapped() if is_wrong:
                return *_fit(*pieces, room, random)[::-1], True
        return *_fit(*pieces, room, random), False

    def _read(self, first: int, last: int) -> Ints:
        return np.asarray(self._store.tokens[self._units[first]:self._units[last]], dtype=np.int64)

    def _random_text(self, unit: int, room: int, random: np.random.Generator) -> Ints:
        """Read whole sentences, one at least and about `room` tokens, from a random place of another document."""
        own = int(np.searchsorted(self._document_units, unit, side="right")) - 1
        drawn = int(random.integers(len(self._filled) - 1))
        other = int(self._filled[drawn + int(drawn >= np.searchsorted(self._filled, own))])
        first = int(random.integers(self._document_units[other], self._document_units[other + 1]))
        return self._read(first, last_unit(self._units, first, int(self._document_units[other + 1]), room))

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
