"""How often each task of a mixture comes, and the batches that follow from it: a pure function of seed and step.

Axes: U units of a sheet, M tasks, S units that an epoch shows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.tasks.mixture_config import Declared, Equal, Proportional, Temperature
from saucier.tasks.sheet import Sheet, SheetRows
from saucier.text.bucketed import LengthPlan, Limits
from saucier.text.rows import Ints, generator, share

Floats = NDArray[np.float64]
OFFSET, ORDER = 12, 13
"""Streams of random numbers."""


def mixing_rates(rates: Any, sizes: Sequence[int], names: Sequence[str]) -> Floats:
    """Return how often each task comes; they sum to one. Shapes: [M].

    Source: Raffel et al. 2020, §3.5.2: r_m = min(e_m, K) / Σ min(e_n, K), and r_m^(1/T) scaled to sum to one.
    """
    counted = np.asarray(sizes, dtype=np.float64)
    match rates:
        case Proportional(cap=cap):
            found = capped(counted, cap)
        case Temperature(temperature=temperature, cap=cap):
            found = capped(counted, cap) ** (1 / temperature)
        case Equal():
            found = np.ones(len(counted))
        case Declared(rates=said):
            found = np.array([said[name] for name in names])
    result: Floats = found / found.sum()
    return result


def capped(sizes: Floats, cap: int | None) -> Floats:
    """Return sizes of at most `cap`. Shapes: [M]."""
    return sizes if cap is None else np.minimum(sizes, cap)


class Draws:
    """Which units an epoch shows: each task as often as its rate says, its units in turn, shuffled in every round."""

    def __init__(self, part: Ints, rates: Floats, size: int, seed: int) -> None:
        """`part` [U] is the task of each unit, `size` the units of an epoch."""
        self._members = [np.flatnonzero(part == number) for number in range(len(rates))]
        self._borders, self._size, self._seed = np.cumsum(rates), size, seed

    def counts(self, epoch: int) -> Ints:
        """Return how many units of each task an epoch shows: its rate of all, rounded up or down. Shapes: [M].

        Points in even steps from a random offset are dealt to the tasks by their rates (systematic sampling), so the
        mean over epochs is the rate itself.
        """
        points = (np.arange(self._size) + generator(self._seed, OFFSET, epoch).random()) / self._size
        tasks = np.searchsorted(self._borders / self._borders[-1], points, side="right")
        return np.bincount(tasks.clip(max=len(self._borders) - 1), minlength=len(self._borders))

    def units(self, epoch: int) -> Ints:
        """Return the units of an epoch, task by task. Shapes: [S]."""
        before = sum((self.counts(one) for one in range(epoch)), np.zeros(len(self._members), dtype=np.int64))
        return np.concatenate([self.turn(number, int(first), int(count)) for number, (first, count)
                               in enumerate(zip(before, self.counts(epoch), strict=True))])

    def turn(self, task: int, first: int, count: int) -> Ints:
        """Return the next `count` units of a task that has shown `first` already. Shapes: [count]."""
        rounds, slots = np.divmod(np.arange(first, first + count), max(1, len(self._members[task])))
        orders = {int(one): generator(self._seed, ORDER, task, int(one)).permutation(self._members[task])
                  for one in np.unique(rounds)}
        return np.array([orders[int(one)][slot] for one, slot in zip(rounds, slots, strict=True)], dtype=np.int64)


class MixedSheetBatches:
    """Endless batches of a mixture, in each of which all tasks may come; an epoch has as many units as count."""

    def __init__(self, sheet: Sheet, rates: Floats, batch: int, *, size: int, seed: int = 0) -> None:
        """Plan batches of at most `batch` units, `size` units in an epoch; `sheet.part` tells the tasks apart."""
        assert sheet.part is not None, "a mixture tells its tasks apart"
        self._sheet, self._batch, self._size, self._seed = sheet, batch, size, seed
        draws = Draws(sheet.part, rates, size, seed)
        self._units = functools.lru_cache(maxsize=2)(draws.units)
        self._plans = functools.lru_cache(maxsize=2)(self._plan)

    def _plan(self, epoch: int) -> LengthPlan:
        return LengthPlan(self._sheet.lengths[self._units(epoch)], Limits(batch=self._batch), self._seed)

    @property
    def steps_per_epoch(self) -> int:
        """How many steps show as many units as count."""
        return -(-self._size // self._batch)

    @property
    def counts(self) -> dict[str, int]:
        """Rows, batches, tokens, padding, of the first epoch."""
        return self._plans(0).counts

    def rows(self, step: int, rank: int = 0, world: int = 1) -> SheetRows:
        """Give the units of batch `step` that process `rank` of `world` works on."""
        epoch = step // self.steps_per_epoch
        units = self._units(epoch)[self._plans(epoch).shuffled_batch(step)]
        mine = share(len(units), rank, world)
        return SheetRows(self._sheet, units[mine], np.arange(len(units))[mine])

    def __getitem__(self, step: int) -> SheetRows:
        """Give the whole batch of one step."""
        return self.rows(step)
