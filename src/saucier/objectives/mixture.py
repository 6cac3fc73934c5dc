"""A mixture of objectives that take turns, one per update: whose turn it is, and the corruption and loss of the
mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from saucier.objectives.base import Batch, Corruption, Loss, Objective
from saucier.text.rows.batch import Batches, make_generator

TURNS = 5
"""Stream of random numbers."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Whose turn it is, a pure function of (seed, step)."""

    weights: tuple[float, ...]
    seed: int = 0

    def at(self, step: int) -> int:
        """Return the number of the part that learns at a step."""
        shares = np.cumsum(self.weights) / sum(self.weights)
        return int(np.searchsorted(shares, make_generator(self.seed, TURNS, step).random(), side="right"))


@dataclass(frozen=True, slots=True)
class MixedBatches(Batches[Any]):
    """The batches of the part whose turn it is; each part reads on at the number of the step."""

    turns: Turns
    parts: tuple[Batches[Any], ...]

    @property
    def steps_per_epoch(self) -> int:
        """The most steps that one part alone would need."""
        return max(part.steps_per_epoch for part in self.parts)

    @property
    def counts(self) -> dict[str, int]:
        """The counts of all parts together."""
        names = dict.fromkeys(name for part in self.parts for name in part.counts)
        return {name: sum(part.counts.get(name, 0) for part in self.parts) for name in names}

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Give the rows of batch `step` that process `rank` of `world` works on."""
        return self.parts[self.turns.at(step)].rows(step, rank, world)


@dataclass(frozen=True, slots=True)
class MixedCorruption:
    """The corruption of the part whose turn it is."""

    turns: Turns
    parts: tuple[Corruption[Any], ...]

    @property
    def overlap(self) -> int:
        """That of the first part; each part's own batches use its own."""
        return self.parts[0].overlap

    def row_length(self, length: int) -> int:
        """That of the first part; each part's own batches use its own."""
        return self.parts[0].row_length(length)

    def __call__(self, rows: Any, *, seed: int, step: int) -> Batch:
        """Make the batch."""
        return self.parts[self.turns.at(step)](rows, seed=seed, step=step)


@dataclass(frozen=True, slots=True)
class MixedObjective(Objective):
    """The losses of the part whose turn it is."""

    turns: Turns
    members: tuple[Objective, ...]
    """In the order of their weights."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of all members; an update has the parts of one."""
        return tuple(dict.fromkeys(name for one in self.members for name in one.parts))

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of all members."""
        return {name: words for one in self.members for name, words in one.figures.items()}

    @property
    def has_moving_targets(self) -> bool:
        """Whether the task of any part does."""
        return any(one.has_moving_targets for one in self.members)

    def at(self, step: int) -> Objective:
        """Return the part whose turn it is."""
        return self.members[self.turns.at(step)].at(step)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The modules of all parts, each name with the number of its part."""
        return {f"{number}.{name}": module for number, one in enumerate(self.members)
                for name, module in one.modules.items()}

    def bind(self, model: nn.Module) -> None:
        """Bind every member."""
        for one in self.members:
            one.bind(model)

    def finish_update(self, model: nn.Module, step: int) -> None:
        """Finish the update of the part whose turn it was."""
        self.members[self.turns.at(step)].finish_update(model, step)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Not for a mixture: only its parts know what a batch is made for."""
        raise TypeError("a mixture learns through the part that `at(step)` gives")

    def count(self, batch: Batch) -> dict[str, float]:
        """Not for a mixture: only its parts know what a batch is made for."""
        raise TypeError("a mixture learns through the part that `at(step)` gives")
