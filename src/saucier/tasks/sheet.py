"""`Sheet`: encoded examples, and the batches that are made of them. Numpy until the last moment.

Axes: N rows, U units (a row, or the rows of one group of choices), B units of a batch, L positions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from saucier.objectives.base import Batch, tensor
from saucier.objectives.batch_sizes import MASKS
from saucier.text.bucketed import Bucketed, LengthPlan, Limits
from saucier.text.rows import Ints
from saucier.text.spelling import spelled, tokens_spelled
from saucier.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths, one behind another. Shapes: values [sum of lengths], offsets [N + 1]."""

    values: Ints
    offsets: Ints
    fill: int
    """What stands at padding."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], fill: int) -> Ragged:
        """Lay rows one behind another."""
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

    def taken(self, rows: Ints) -> Ragged:
        """Return some rows, in a new order. Shapes: rows [B]."""
        return Ragged.of([self.row(number).tolist() for number in rows.tolist()], self.fill)

    def joined(self, groups: Sequence[Ints]) -> Ragged:
        """Return rows of several rows each, one behind another. Shapes: groups R lists of row numbers."""
        return Ragged.of([[value for number in rows for value in self.row(number).tolist()] for rows in groups],
                         self.fill)

    def padded(self, rows: Ints) -> Ints:
        """Return rows, filled up to the longest on the right. Shapes: [B] -> [B, L]."""
        found = np.full((len(rows), int(self.lengths[rows].max(initial=1))), self.fill, dtype=np.int64)
        for line, number in zip(found, rows.tolist(), strict=True):
            values = self.row(number)
            line[:len(values)] = values
        return found


@dataclass(frozen=True, slots=True)
class Cut:
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
class Spelled:
    """The characters of a sheet's tokens, for models that read them."""

    numbers: Ragged
    """Which row of the table each token has."""
    table: NDArray[np.int16]
    """[different tokens, characters]."""

    @classmethod
    def of(cls, ids: Ragged, tokenizer: Tokenizer, *, longest: int, unknown: Mapping[int, str]) -> Spelled:
        """Spell tokens; `unknown`: words that the vocabulary has not, by where they stand in `ids.values`."""
        known, numbers = np.unique(ids.values, return_inverse=True)
        words = sorted(set(unknown.values()))
        places = {word: len(known) + number for number, word in enumerate(words)}
        numbers[list(unknown)] = [places[word] for word in unknown.values()]
        table = np.concatenate([tokens_spelled(tokenizer, known.tolist(), longest), spelled(words, longest)])
        return cls(Ragged(numbers, ids.offsets, 0), table)

    def of_rows(self, rows: Ints) -> NDArray[np.int16]:
        """Return the characters of some rows. Shapes: [B] -> [B, L, characters]."""
        return self.table[self.numbers.padded(rows)]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Encoded examples.

    Shapes: each of `wide` N rows, `flat` and `item` [U] or [U, ...].
    """

    wide: Mapping[str, Ragged]
    """Arguments of the model, and labels, with a value for each position; `input_ids` is among them."""
    flat: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Labels with a value for each unit."""
    item: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The example that each unit was made of."""
    cut: Cut = Cut()
    """What was lost."""
    beside: Mapping[str, Ragged] = field(default_factory=dict)
    """With a value for each position too, for the task alone: what it needs to understand the model's outputs."""
    part: Ints | None = None
    """[U], which task of a mixture each unit belongs to; None where there is one task."""
    spelled: Spelled | None = None
    """The characters of each token, where the model reads them."""
    group: int = 1
    """Rows of a unit; more than one where the model compares several texts (ids [B, group, L])."""

    def __len__(self) -> int:
        return len(self.item)

    @property
    def lengths(self) -> Ints:
        """Tokens of each unit, of its longest row, on each side. Shapes: [U, sides]."""
        sides = [self.wide[name] for name in ("input_ids", "decoder_input_ids", "labels") if name in self.wide]
        different = [side for number, side in enumerate(sides) if number == 0
                     or not np.array_equal(side.offsets, sides[0].offsets)]
        return np.stack([side.lengths.reshape(-1, self.group).max(axis=1) for side in different], axis=1)

    def batch(self, units: Ints) -> Batch:
        """Return what the model and its objective read of some units. Shapes: [B] -> [B, L], or [B, group, L]."""
        rows = (units[:, None] * self.group + np.arange(self.group)).ravel()
        found: Batch = {}
        for name, ragged in self.wide.items():
            values = ragged.padded(rows)
            found[name] = self.shaped(values)
            if name in MASKS:
                found[MASKS[name]] = self.shaped(np.arange(values.shape[1]) < ragged.lengths[rows][:, None])
        if self.spelled is not None:
            found["characters"] = tensor(self.spelled.of_rows(rows))
        for name, column in self.flat.items():
            chosen = column[units]
            found[name] = torch.from_numpy(chosen.astype(np.float32)) if chosen.dtype.kind == "f" else tensor(chosen)
        return found

    def shaped(self, values: NDArray[Any]) -> torch.Tensor:
        """Put the rows of a unit side by side. Shapes: [B * group, L] -> [B, group, L], or the same."""
        return tensor(values if self.group == 1 else values.reshape(-1, self.group, values.shape[1]))


def some_rows(sheet: Sheet, rows: Ints) -> Sheet:
    """Return some rows of a sheet without groups, as if there were no others. Shapes: rows [N']."""
    wide = {name: Ragged.of([one.row(row).tolist() for row in rows.tolist()], one.fill)
            for name, one in sheet.wide.items()}
    return Sheet(wide, {name: column[rows] for name, column in sheet.flat.items()}, sheet.item[rows], sheet.cut)


def joined_sheets(sheets: Sequence[Sheet]) -> Sheet:
    """Put sheets of the same inputs one behind another."""
    def end_to_end(parts: Sequence[Ragged]) -> Ragged:
        starts = np.cumsum([0, *(len(one.values) for one in parts)])
        offsets = [one.offsets[:-1] + start for one, start in zip(parts, starts, strict=False)]
        return Ragged(np.concatenate([one.values for one in parts]), np.concatenate([*offsets, starts[-1:]]),
                      parts[0].fill)

    first = sheets[0]
    lost = {name: sum(getattr(one.cut, name) for one in sheets) for name in ("rows", "tokens", "targets", "dropped")}
    return Sheet({name: end_to_end([one.wide[name] for one in sheets]) for name in first.wide},
                 {name: np.concatenate([one.flat[name] for one in sheets]) for name in first.flat},
                 np.concatenate([one.item for one in sheets]),
                 replace(first.cut, **lost),
                 part=None if first.part is None else np.concatenate([one.part for one in sheets
                                                                      if one.part is not None]))


@dataclass(frozen=True, slots=True)
class SheetRows:
    """The units of a batch."""

    sheet: Sheet
    units: Ints
    row: Ints
    """Their numbers in the global batch."""

    def __len__(self) -> int:
        return len(self.units)

    def select(self, part: slice) -> SheetRows:
        """Take some of them (a micro-batch)."""
        return SheetRows(self.sheet, self.units[part], self.row[part])


class SheetBatches(Bucketed[SheetRows]):
    """Endless batches of units of about one length, in an order that depends on the seed."""

    def __init__(self, sheet: Sheet, batch: int, *, seed: int = 0) -> None:
        """Plan batches of at most `batch` units."""
        super().__init__(LengthPlan(sheet.lengths, Limits(batch=batch), seed), functools.partial(SheetRows, sheet))


def ordered(sheet: Sheet, batch: int) -> Iterator[SheetRows]:
    """Yield every unit once, shortest first."""
    plan = LengthPlan(sheet.lengths, Limits(batch=batch), 0)
    for step in range(plan.batches):
        units = plan.ordered_batch(step)
        yield SheetRows(sheet, units, np.arange(len(units)))


@dataclass(frozen=True, slots=True)
class Collate:
    """Units to a batch; nothing is drawn."""

    overlap: ClassVar[int] = 0

    def row_length(self, length: int) -> int:
        """The same."""
        return length

    def __call__(self, rows: SheetRows, *, seed: int, step: int) -> Batch:
        """Pad them."""
        return rows.sheet.batch(rows.units)
