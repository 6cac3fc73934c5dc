"""`Rows`, `PairRows` and `Batches`: what the data side gives to an objective's corruption, the order of rows,
and how texts share rows. Plain numpy, no torch.

Axes: B rows, L positions of a row, S source positions, T target positions, N texts.
"""

from __future__ import annotations

import bisect
import functools
import operator
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
GOLDEN = 0x9E3779B97F4A7C15
"""An odd number whose products with whole numbers are far apart, modulo 2^64: 2^64 by the golden ratio."""
PADDING = -1
"""The document number of a padded position."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of running text, packed (several documents in one row) or padded (one text in each row).

    Shapes: tokens, documents, positions, segments, sentence_starts [B, L]; context, sentence_label, row, item [B].
    """

    tokens: Ints
    """Token ids; the pad id (0 where the tokenizer has none) at padding."""
    documents: Ints
    """A number per document, equal for tokens that may attend to each other; -1 at padding."""
    positions: Ints
    """Positions counted again from 0 at every document start; 0 at padding."""
    segments: Ints
    """Token types: 0, or 1 in the second text of a sentence pair."""
    context: Ints
    """The first `context` tokens of the row are there to be attended to only; they are not targets."""
    sentence_label: Ints
    """For sentence pairs: 0 where the second text follows the first, 1 where it was drawn at random; else 0."""
    row: Ints
    """The row's number inside the global batch, the same for any number of processes: seed randomness with it."""
    item: Ints
    """The row's number in the stored order of the data, the same in every epoch: seed static masks with it."""
    sentence_starts: NDArray[np.bool_] | None = None
    """True where a sentence starts; None where the store does not know."""
    languages: Ints | None = None
    """[B, L], the number of each token's language; None where the data does not name languages."""
    continues: NDArray[np.bool_] | None = None
    """[B], True where the row goes on where the same row of the step before ended; None: no row ever does."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where there is a real token. Shapes: [B, L]."""
        return np.not_equal(self.documents, PADDING)

    def select(self, rows: slice) -> Rows:
        """Take some of the rows (a micro-batch), as long as the longest of them."""
        length = int(self.mask[rows].sum(axis=1).max(initial=1))
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}
        return replace(self, **{name: value[rows] if value.ndim == 1 else value[rows, :length]
                                for name, value in given.items()})


@dataclass(frozen=True, slots=True)
class PairRows:
    """Rows of source and target texts, each ended as the tokenizer ends a text; padding is on the right.

    Nothing is shifted: a decoder's input is the start token followed by `target` without its last token.
    Shapes: source [B, S]; target [B, T]; source_lengths, target_lengths, row, item [B].
    """

    source: Ints
    """Token ids of the source texts; the pad id (0 where there is none) at padding."""
    target: Ints
    """Token ids of the target texts; the pad id (0 where there is none) at padding."""
    source_lengths: Ints
    """Real tokens of each source."""
    target_lengths: Ints
    """Real tokens of each target."""
    row: Ints
    """The row's number inside the global batch, the same for any number of processes: seed randomness with it."""
    item: Ints
    """The pair's number in the stored order of the data."""
    start: Ints | None = None
    """[B], what a decoder begins with; None: the same for all rows, which the tokenizer says."""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def source_mask(self) -> NDArray[np.bool_]:
        """True where there is a real source token. Shapes: [B, S]."""
        return np.arange(self.source.shape[1]) < self.source_lengths[:, None]

    @property
    def target_mask(self) -> NDArray[np.bool_]:
        """True where there is a real target token. Shapes: [B, T]."""
        return np.arange(self.target.shape[1]) < self.target_lengths[:, None]

    def select(self, rows: slice) -> PairRows:
        """Take some of the rows (a micro-batch), as long as the longest of them."""
        source, target = self.source_lengths[rows], self.target_lengths[rows]
        return PairRows(source=self.source[rows, : int(source.max(initial=1))],
                        target=self.target[rows, : int(target.max(initial=1))],
                        source_lengths=source, target_lengths=target, row=self.row[rows], item=self.item[rows],
                        start=None if self.start is None else self.start[rows])


R_co = TypeVar("R_co", covariant=True)


class Batches(Protocol[R_co]):
    """An endless supply of global batches; batch `step` is a pure function of (data, seed, step)."""

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show the data once (rounded up)."""

    @property
    def counts(self) -> dict[str, int]:
        """What happened to the data, for the report: rows, tokens, truncated, dropped, padding, ..."""

    def rows(self, step: int, rank: int = 0, world: int = 1) -> R_co:
        """Give the rows of batch `step` that process `rank` of `world` works on; together they are the whole batch."""

    def __getitem__(self, step: int) -> R_co:
        """Give the whole batch of one step."""
        return self.rows(step)


class Evaluation(Batches[R_co], Protocol[R_co]):
    """Every row of the data once, in one order: batches that end, counted by `len`."""

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __getitem__(self, step: int) -> R_co:
        """Give one whole batch; the last may have fewer rows."""
        if not 0 <= step < len(self):
            raise IndexError(step)
        return self.rows(step)

    def __iter__(self) -> Iterator[R_co]:
        return (self.rows(step) for step in range(len(self)))


def compute_padding_share(counts: Mapping[str, int]) -> float:
    """Return which share of the places of rows holds no token; 0 where the rows do not count their padding."""
    empty = counts.get("padding", 0)
    return empty / (empty + counts["tokens"] + counts.get("repeated", 0)) if empty else 0.0


def take_share(count: int, rank: int, world: int) -> slice:
    """Cut `count` rows into `world` consecutive shares that differ by one row at most, and give the one of `rank`."""
    return slice(count * rank // world, count * (rank + 1) // world)


def stack_rows(parts: Sequence[Rows]) -> Rows:
    """Put rows of several batches under one another, filled up to the longest."""
    longest = max(part.tokens.shape[1] for part in parts)
    stacked = {}
    for one in fields(Rows):
        values = [getattr(part, one.name) for part in parts]
        if any(value is None for value in values):
            continue
        filler = PADDING if one.name == "documents" else 0
        stacked[one.name] = np.concatenate([
            value if value.ndim == 1 or value.shape[1] == longest else
            np.pad(value, ((0, 0), (0, longest - value.shape[1])), constant_values=filler) for value in values])
    return Rows(**stacked)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Which rows a process has of a batch. Shapes: [B] each."""

    numbers: Ints
    """Their numbers inside the global batch."""
    epochs: Ints
    """The epoch of each; a batch may begin in one and end in the next."""
    items: Ints
    """Their numbers in the stored order."""
    step: int
    """The number of the batch."""


class ShuffledBatches(Batches[Rows]):
    """Endless batches of numbered rows, shuffled again in every epoch; subclasses read the rows that are drawn."""

    def __init__(self, count: int, *, batch: int, seed: int) -> None:
        """Draw from `count` rows, `batch` at a step."""
        self._count, self._batch, self._seed = count, batch, seed
        self._order = functools.lru_cache(maxsize=2)(self._shuffle_epoch)

    def _shuffle_epoch(self, epoch: int) -> Ints:
        return make_generator(self._seed, epoch).permutation(self._count)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show every row once (rounded up)."""
        return -(-self._count // self._batch)

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Rows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        numbers = np.arange(self._batch)[take_share(self._batch, rank, world)]
        epochs, slots = np.divmod(step * self._batch + numbers, self._count)
        pairs = zip(epochs.tolist(), slots.tolist(), strict=True)
        items = np.array([self._order(epoch)[slot] for epoch, slot in pairs], dtype=np.int64)
        return self.read_rows(DrawnRows(numbers, epochs, items, step))

    @abstractmethod
    def read_rows(self, drawn: DrawnRows) -> Rows:
        """Read the rows that were drawn."""


def make_generator(seed: int, *stream: int) -> np.random.Generator:
    """Give the random generator of one purpose: the same numbers for the same seed and stream, on every machine."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *stream])))


def pack_texts(lengths: Ints, room: int) -> list[Ints]:
    """Say which texts share a row, so that none of its sides has more than `room` tokens, or the longest text alone.

    The longest first, each into the fullest row that still takes it. Shapes: lengths [N, sides] -> the texts of each
    row. Source: Johnson et al. 1974, "best-fit decreasing", at most 11/9 of the fewest rows and a few for one side;
    here for rows of several sides.
    """
    whole, sizes = max(room, int(lengths.max(initial=1))), lengths.tolist()
    rows: list[list[int]] = []
    left: list[list[int]] = []  # room on each side of a row
    free: list[tuple[int, int]] = []  # (room on all its sides, row), sorted
    for text in np.argsort(-lengths.max(axis=1), kind="stable").tolist():
        size = sizes[text]
        first = bisect.bisect_left(free, (sum(size), -1))
        place = next((one for one in range(first, len(free))
                      if all(map(operator.ge, left[free[one][1]], size))), len(free))
        if place == len(free):
            free.append((whole * len(size), len(rows)))
            rows.append([])
            left.append([whole] * len(size))
        _, row = free.pop(place)
        rows[row].append(text)
        left[row] = list(map(operator.sub, left[row], size))
        bisect.insort(free, (sum(left[row]), row))
    return [np.array(sorted(row), dtype=np.int64) for row in rows]


@dataclass(frozen=True, slots=True)
class PackedTexts:
    """Where the tokens of one side are in rows that several texts share. Shapes: [R, L] each."""

    text: Ints
    """The text of each token; PADDING where there is none."""
    place: Ints
    """Its place in the text, from 0."""

    @classmethod
    def of(cls, bins: Sequence[Ints], lengths: Ints) -> PackedTexts:
        """Put the texts of each row one after another. Shapes: lengths [N]."""
        texts = [np.repeat(row, lengths[row]) for row in bins]
        places = [np.concatenate([np.arange(length) for length in lengths[row]]) for row in bins]
        return cls(pad_ids(texts, PADDING)[0], pad_ids(places, 0)[0])

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where there is a token. Shapes: [R, L]."""
        return np.not_equal(self.text, PADDING)

    def gather(self, values: Ints, fill: int) -> Ints:
        """Return the values of the texts' tokens, `fill` elsewhere. Shapes: [N, longest] -> [R, L]."""
        return np.where(self.mask, values[self.text, self.place], fill)


def pad_ids(rows: Sequence[Ints], filler: int) -> tuple[Ints, Ints]:
    """Put rows of unequal length into one array, one place wide at least. Shapes: -> [B, longest], [B] lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    found = np.full((len(rows), int(lengths.max(initial=1))), filler, dtype=np.int64)
    for line, values in zip(found, rows, strict=True):
        line[:len(values)] = values
    return found, lengths


def mark_members(values: NDArray[Any], known: NDArray[Any]) -> NDArray[np.bool_]:
    """Say which values are among `known`, which grow; a large list of them stays on the disk. Shapes: any -> same."""
    if not len(known):
        return np.zeros(values.shape, dtype=np.bool_)
    places = np.searchsorted(known, values)
    found: NDArray[np.bool_] = known[np.minimum(places, len(known) - 1)] == values
    return found


def mix_bits(values: Hashes) -> Hashes:
    """Spread every bit over all others, so that high bits are as good as low ones. Shapes: any -> same.

    Source: Steele et al. 2014, "Fast splittable pseudorandom number generators": the finalizer of SplitMix64.
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def scale_batch(batch: int, length: int, tokens: int, rows: int) -> int:
    """Return how many rows hold about as many tokens as `batch` full ones of `length`, by the mean of all `rows`."""
    return max(1, round(batch * length * rows / max(1, tokens)))
