"""`EncodedExamples`: examples as rows of tokens, special tokens around texts, windows over long texts, and the
batches that are made of them. Numpy until the last moment.

Axes: N rows, U units (a row, or the rows of one group of choices), B units of a batch, L positions, W windows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives.token_ids import MASK_OF_INPUT
from saucier.text.rows.batch import Batches, Ints, make_generator, pad_ids, take_share
from saucier.text.rows.bucketed import BatchLimits, BucketedBatches, LengthPlan
from saucier.text.tokenizer.model_inputs import EncodedRow, spell_tokens, spell_words
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Batch


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths, one after another. Shapes: values [sum of lengths], offsets [N + 1]."""

    values: Ints
    offsets: Ints
    fill: int
    """The value of padding."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], fill: int) -> Ragged:
        """Lay rows one after another."""
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        values = np.fromiter((value for row in rows for value in row), dtype=np.int64, count=int(lengths.sum()))
        return cls(values, np.concatenate([[0], np.cumsum(lengths)]), fill)

    @property
    def lengths(self) -> Ints:
        """Length of each row. Shapes: [N]."""
        return np.diff(self.offsets)

    def row(self, number: int) -> Ints:
        """Return one row. Shapes: [its length]."""
        return self.values[self.offsets[number]:self.offsets[number + 1]]

    def joined(self, groups: Iterable[Ints]) -> Ragged:
        """Return rows of several rows each, one after another. Shapes: groups R arrays of row numbers."""
        return Ragged.of([[value for number in rows for value in self.row(number).tolist()] for rows in groups],
                         self.fill)

    def padded(self, rows: Ints) -> Ints:
        """Return rows, filled up to the longest on the right. Shapes: [B] -> [B, L]."""
        return pad_ids([self.row(number) for number in rows.tolist()], self.fill)[0]


@dataclass(frozen=True, slots=True)
class Truncation:
    """What did not fit into the rows."""

    rows: int = 0
    """Rows that were longer than the limit."""
    tokens: int = 0
    """Tokens that were left out of them."""
    targets: int = 0
    """Labels, entities or answers that were lost with them."""
    what: str = "labels"
    """What a person calls these."""
    dropped: int = 0
    """Rows of these that were left out altogether."""


@dataclass(frozen=True, slots=True)
class TokenCharacters:
    """The characters of encoded tokens, for models that read them."""

    numbers: Ragged
    """Which row of the table each token has."""
    table: NDArray[np.int16]
    """[different tokens, characters]."""

    @classmethod
    def of(cls, ids: Ragged, tokenizer: Tokenizer, *, longest: int, unknown: Mapping[int, str]) -> TokenCharacters:
        """Spell tokens; `unknown`: words that the vocabulary has not, by their places in `ids.values`."""
        known, numbers = np.unique(ids.values, return_inverse=True)
        words = sorted(set(unknown.values()))
        places = {word: len(known) + number for number, word in enumerate(words)}
        numbers[list(unknown)] = [places[word] for word in unknown.values()]
        table = np.concatenate([spell_tokens(tokenizer, known.tolist(), longest), spell_words(words, longest)])
        return cls(Ragged(numbers, ids.offsets, 0), table)


@dataclass(frozen=True, slots=True)
class EncodedExamples:
    """Encoded examples.

    Shapes: each of `sequences` N rows, `unit_values` and `example_numbers` [U] or [U, ...].
    """

    sequences: Mapping[str, Ragged]
    """Arguments of the model, and labels, with a value for each position; `input_ids` is among them."""
    unit_values: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Labels with a value for each unit."""
    example_numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The example that each unit was made of."""
    truncation: Truncation = Truncation()
    """What was lost."""
    position_data: Mapping[str, Ragged] = field(default_factory=dict)
    """With a value for each position too, for the task alone: what it needs to understand the model's outputs."""
    task_numbers: Ints | None = None
    """[U], which task of a mixture each unit belongs to; None where there is one task."""
    characters: TokenCharacters | None = None
    """The characters of each token, where the model reads them."""
    notes: tuple[str, ...] = ()
    """Lines about these examples that a person should read."""
    topics: Ints | None = None
    """[U], what each unit is about, where the units of a batch shall be about one thing."""
    group: int = 1
    """Rows of a unit; more than one where the model compares several texts (ids [B, group, L])."""

    def __len__(self) -> int:
        return len(self.example_numbers)

    @property
    def lengths(self) -> Ints:
        """Tokens of each unit, of its longest row, on each side. Shapes: [U, sides]."""
        sides = [self.sequences[name] for name in ("input_ids", "decoder_input_ids", "labels")
                 if name in self.sequences]
        different = [side for number, side in enumerate(sides) if number == 0
                     or not np.array_equal(side.offsets, sides[0].offsets)]
        return np.stack([side.lengths.reshape(-1, self.group).max(axis=1) for side in different], axis=1)

    def batch(self, units: Ints) -> Batch:
        """Return what the model and its objective read of some units. Shapes: [B] -> [B, L], or [B, group, L]."""
        import torch

        from saucier.objectives.base import to_int_tensor

        rows = (units[:, None] * self.group + np.arange(self.group)).ravel()
        found: Batch = {}
        for name, ragged in self.sequences.items():
            values = ragged.padded(rows)
            found[name] = self.shaped(values)
            whose, dot, plain = name.rpartition(".")  # a teacher's rows stand beside the model's own
            if plain in MASK_OF_INPUT:
                mask = np.arange(values.shape[1]) < ragged.lengths[rows][:, None]
                found[whose + dot + MASK_OF_INPUT[plain]] = self.shaped(mask)
        if self.characters is not None:
            found["characters"] = to_int_tensor(self.characters.table[self.characters.numbers.padded(rows)])
        for name, column in self.unit_values.items():
            chosen = column[units]
            found[name] = torch.from_numpy(chosen.astype(np.float32)) if chosen.dtype.kind == "f" \
                else to_int_tensor(chosen)
        return found

    def shaped(self, values: NDArray[Any]) -> Tensor:
        """Put the rows of a unit side by side. Shapes: [B * group, L] -> [B, group, L], or the same."""
        from saucier.objectives.base import to_int_tensor

        return to_int_tensor(values if self.group == 1 else values.reshape(-1, self.group, values.shape[1]))


def take_rows(encoded: EncodedExamples, rows: Ints) -> EncodedExamples:
    """Return some rows of encoded examples without groups, as if there were no others. Shapes: rows [N']."""
    return EncodedExamples({name: one.joined(rows[:, None]) for name, one in encoded.sequences.items()},
                           {name: column[rows] for name, column in encoded.unit_values.items()},
                           encoded.example_numbers[rows], encoded.truncation)


def join_encoded(parts: Sequence[EncodedExamples]) -> EncodedExamples:
    """Put parts of the same inputs one after another."""
    def end_to_end(parts: Sequence[Ragged]) -> Ragged:
        lengths = np.concatenate([one.lengths for one in parts])
        return Ragged(np.concatenate([one.values for one in parts]), np.append(0, np.cumsum(lengths)), parts[0].fill)

    first = parts[0]
    lost = {name: sum(getattr(one.truncation, name) for one in parts)
            for name in ("rows", "tokens", "targets", "dropped")}
    task_numbers = [one.task_numbers for one in parts if one.task_numbers is not None]
    return EncodedExamples({name: end_to_end([one.sequences[name] for one in parts]) for name in first.sequences},
                           {name: np.concatenate([one.unit_values[name] for one in parts])
                            for name in first.unit_values},
                           np.concatenate([one.example_numbers for one in parts]), replace(first.truncation, **lost),
                           task_numbers=np.concatenate(task_numbers) if task_numbers else None)


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The units of a batch."""

    encoded: EncodedExamples
    units: Ints
    row: Ints
    """Their numbers in the global batch."""

    def __len__(self) -> int:
        return len(self.units)

    def select(self, part: slice) -> EncodedRows:
        """Take some of them (a micro-batch)."""
        return EncodedRows(self.encoded, self.units[part], self.row[part])


class EncodedBatches(BucketedBatches[EncodedRows]):
    """Endless batches of units of about one length, or of one topic, in an order that depends on the seed."""

    def __init__(self, encoded: EncodedExamples, batch: int, *, seed: int = 0) -> None:
        """Plan batches of at most `batch` units."""
        super().__init__(LengthPlan(encoded.lengths, BatchLimits(batch=batch), seed, topics=encoded.topics),
                         functools.partial(EncodedRows, encoded))


def order_by_length(encoded: EncodedExamples, batch: int) -> Iterator[EncodedRows]:
    """Yield every unit once, longest first: what a batch leaves free then has room for the next one. Where they grow,
    memory grows with their number, since libraries keep a little of each new shape in between.
    """
    plan = LengthPlan(encoded.lengths, BatchLimits(batch=batch), 0)
    for step in reversed(range(plan.batches)):
        units = plan.ordered_batch(step)
        yield EncodedRows(encoded, units, np.arange(len(units)))


@dataclass(frozen=True, slots=True)
class CollateExamples:
    """Units to a batch; nothing is drawn."""

    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: EncodedRows, *, seed: int, step: int) -> Batch:
        """Pad them."""
        return rows.encoded.batch(rows.units)


DRAWN_STREAM = 24
"""A stream of random numbers."""


def draw_units(example_numbers: Ints, random: np.random.Generator) -> Ints:
    """Draw one unit of each example. Shapes: example_numbers [U], in order -> [N]."""
    _, starts, counts = np.unique(example_numbers, return_index=True, return_counts=True)
    return starts + (random.random(len(starts)) * counts).astype(np.int64)


@dataclass(frozen=True, slots=True)
class DrawnBatches(Batches[EncodedRows]):
    """Endless batches: in each epoch every example once, in a new order, with one of its units, which is drawn."""

    encoded: EncodedExamples
    batch: int
    seed: int
    names: tuple[str, str]
    """What examples and units are called."""

    @property
    def examples(self) -> int:
        """How many there are."""
        return len(np.unique(self.encoded.example_numbers))

    @property
    def steps_per_epoch(self) -> int:
        """How many batches show all examples."""
        return -(-self.examples // self.batch)

    @property
    def counts(self) -> dict[str, int]:
        """Examples, and the units that may be drawn."""
        return dict(zip(self.names, (self.examples, len(self.encoded)), strict=True))

    def rows(self, step: int, rank: int = 0, world: int = 1) -> EncodedRows:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        epoch, place = divmod(step, self.steps_per_epoch)
        random = make_generator(self.seed, DRAWN_STREAM, epoch)
        units = random.permutation(draw_units(self.encoded.example_numbers, random))
        units = units[place * self.batch:(place + 1) * self.batch]
        mine = take_share(len(units), rank, world)
        return EncodedRows(self.encoded, units[mine], np.arange(len(units))[mine])


LENGTH_COUNTS = 0.01
"""What a token of a window's length adds to the context of a place. Source: Devlin et al. 2019, code release."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The special tokens that a tokenizer puts before, between and after the texts of a row."""

    borders: tuple[tuple[int, ...], ...]
    """One more than there are texts."""
    border_types: tuple[tuple[int, ...], ...]
    """The segments of these tokens."""
    text_types: tuple[int, ...]
    """The segment of each text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, sample: str, texts: int) -> Frame:
        """Read the frame off a row of `texts` texts of one token each, the first of `sample`.

        Raises `InputError` where the sample has no tokens.
        """
        parts = [tokenizer.encodings([sample], False)[0] for _ in range(texts)]
        if not parts[0].ids:
            raise InputError(f"the tokenizer makes no token of {sample[:40]!r}", where="data",
                             remedy="give texts in a language that it knows")
        for part in parts:
            part.truncate(1)
        done = tokenizer.backend.post_process(parts[0], parts[1] if texts > 1 else None, True)
        ids, types = tokenizer.published_ids(done.ids), done.type_ids
        places = [place for place, text in enumerate(done.sequence_ids) if text is not None]
        borders = [slice(before + 1, after) for before, after in itertools.pairwise([-1, *places, len(ids)])]
        return cls(tuple(tuple(ids[border]) for border in borders), tuple(tuple(types[border]) for border in borders),
                   tuple(types[place] for place in places))

    @property
    def size(self) -> int:
        """How many tokens it takes of a row."""
        return sum(map(len, self.borders))

    def room(self, length: int, taken: int = 0, *, what: str, where: str, remedy: str) -> int:
        """Return how many tokens a row has for a text next to `taken` others. Raises `InputError` where it has none."""
        room = length - self.size - taken
        if room < 1:
            raise InputError(f"rows of {length} tokens have no room {what}", where=where, remedy=remedy)
        return room

    def row(self, *texts: Sequence[int]) -> EncodedRow:
        """Put texts into it."""
        ids, types = list(self.borders[0]), list(self.border_types[0])
        for place, text in enumerate(texts):
            ids += [*text, *self.borders[place + 1]]
            types += [*[self.text_types[place]] * len(text), *self.border_types[place + 1]]
        return EncodedRow(ids, types)

    def start(self, *before: int) -> int:
        """Return where a text begins, after others of these lengths."""
        return sum(before) + sum(map(len, self.borders[:len(before) + 1]))


def split_windows(length: int, room: int, step: int) -> list[tuple[int, int]]:
    """Return where windows of at most `room` tokens begin and end; each begins `step` tokens after the one before.

    Source: Devlin et al. 2019, code release (document stride).
    """
    last = max(0, length - room)  # from here on a window reaches the end
    return [(start, min(start + room, length)) for start in range(0, last + step, step)]


def assign_owners(spans: Sequence[tuple[int, int]]) -> Ints:
    """Return for each token the window in which it has most context on its poorer side; of equal ones the first.

    Source: Devlin et al. 2019, code release (maximal context). Shapes: -> [N].
    """
    places = np.arange(spans[-1][1])
    starts, stops = np.array(spans, dtype=np.int64).T[:, :, None]
    context = np.minimum(places - starts, stops - 1 - places) + LENGTH_COUNTS * (stops - starts)
    found: Ints = np.where((places >= starts) & (places < stops), context, -1.0).argmax(axis=0)
    return found
