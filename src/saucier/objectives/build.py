"""From an objective's config to its two halves, the corruption for the data side and the loss for the training loop;
and a mixture of objectives that take turns, one per update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from saucier.config.registry import find_builder
from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Batch, Corruption, Loss, Objective, ObjectiveInputs
from saucier.objectives.bidirectional import build_bidirectional
from saucier.objectives.causal import build_causal
from saucier.objectives.denoising import build_denoising
from saucier.objectives.masked import build_masked_prediction, build_parallel
from saucier.objectives.pairs import build_conditional, build_sequence_to_sequence
from saucier.objectives.permutation import build_permutation
from saucier.objectives.replaced_tokens import build_replaced
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


@dataclass(frozen=True, slots=True)
class BuiltObjective:
    """An objective, built; a mixture has several."""

    config: c.Single
    corruption: Corruption[Any]
    objective: Objective
    weight: float = 1.0
    """How often its turn comes."""


def build_objectives(config: c.ObjectiveConfig, given: ObjectiveInputs) -> tuple[BuiltObjective, ...]:
    """Build an objective, or every part of a mixture. Raises `InputError` as `build_objective`."""
    parts = config.parts if isinstance(config, c.Mixture) else (c.MixturePart(objective=config),)
    return tuple(BuiltObjective(part.objective, *build_objective(part.objective, given), weight=part.weight)
                 for part in parts)


def plan_turns(objectives: Sequence[BuiltObjective], seed: int) -> Turns:
    """Return whose turn it is at which step."""
    return Turns(tuple(built.weight for built in objectives), seed)


def join_objectives(objectives: Sequence[BuiltObjective], seed: int) -> tuple[Corruption[Any], Objective]:
    """Return the two halves of all objectives together."""
    if len(objectives) == 1:
        return objectives[0].corruption, objectives[0].objective
    turns = plan_turns(objectives, seed)
    return (MixedCorruption(turns, tuple(built.corruption for built in objectives)),
            MixedObjective(turns, tuple(built.objective for built in objectives)))


def build_objective(config: c.Single, given: ObjectiveInputs) -> tuple[Corruption[Any], Objective]:
    """Build both halves.

    Raises `InputError` for a body that cannot learn it, and when the tokenizer lacks a token that it needs.
    """
    for found in () if given.body is None else config.check_body(given.body):
        path = ("objective", *found.path) if found.own else found.path
        raise InputError(found.what, where=".".join(path), remedy=found.remedy)
    return (BUILDERS.get(config.kind) or find_builder(config))(config, given)


BUILDERS: Mapping[str, Callable[[Any, ObjectiveInputs], tuple[Corruption[Any], Objective]]] = {
    "causal": build_causal,
    "bidirectional": build_bidirectional,
    "masked": build_masked_prediction,
    "translation_masked": build_parallel,
    "masked_sides": build_parallel,
    "sequence_to_sequence": build_sequence_to_sequence,
    "conditional_masked": build_conditional,
    "replaced": build_replaced,
    "permutation": build_permutation,
    "span_corruption": build_denoising,
    "replace_spans": build_denoising,
    "drop_tokens": build_denoising,
    "prefix_lm": build_denoising,
    "denoising": build_denoising,
    "mixture_of_denoisers": build_denoising,
    "multilingual_denoising": build_denoising,
}
"""What builds an objective of each kind; its data are in `saucier.objectives.config`."""
