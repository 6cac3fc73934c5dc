"""How often each task of a mixture comes, and the batches that follow from it: a pure function of seed and step.

Axes: U units of a sheet, M tasks, S units that an epoch shows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.tasks.sheet import Sheet, SheetRows
from saucier.tasks.written.mixture_config import Declared, Equal, Proportional, Temperature
from saucier.text.bucketed import Bucketed, LengthPlan, Limits
from saucier.text.rows import Ints, generator

Floats = NDArray[np.float64]
OFFSET, ORDER = 12, 13
"""Streams of random numbers."""


def mixing_rates(rates: Any, sizes: Sequence[int], names: Sequence[str]) -> Floats:
    """Return how often each task comes; they sum to one, and a task without rows never comes. Shapes: [M].

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
            found = np.array([said.get(name, 0.0) for name in names])
    found = np.where(counted > 0, found, 0.0)  # of nothing, nothing comes
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


class MixedSheetBatches(Bucketed[SheetRows]):
    """Endless batches of a mixture, in each of which all tasks may come; an epoch has as many units as count."""

    def __init__(self, sheet: Sheet, rates: Floats, batch: int, *, size: int, seed: int = 0) -> None:
        """Plan batches of at most `batch` units, `size` units in an epoch; `sheet.part` tells the tasks apart."""
        assert sheet.part is not None, "a mixture tells its tasks apart"
        units = functools.lru_cache(maxsize=2)(Draws(sheet.part, rates, size, seed).units)

        def plan(epoch: int) -> LengthPlan:
            return LengthPlan(sheet.lengths[units(epoch)], Limits(batch=batch), seed)

        self._units, self._plans = units, functools.lru_cache(maxsize=2)(plan)
        super().__init__(plan(0), functools.partial(SheetRows, sheet))

    def _items(self, step: int) -> Ints:
        epoch = step // self.steps_per_epoch
        return self._units(epoch)[self._plans(epoch).shuffled_batch(step)]
