"""From an objective's config to its two halves: the corruption for the data side, the loss for the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Corruption, Objective, ObjectiveInputs
from saucier.objectives.bidirectional import build_bidirectional
from saucier.objectives.causal import build_causal
from saucier.objectives.denoising import build_denoising
from saucier.objectives.masked import build_masked_prediction, build_parallel
from saucier.objectives.mixture import MixedCorruption, MixedObjective, Turns
from saucier.objectives.pairs import build_conditional, build_sequence_to_sequence
from saucier.objectives.permutation import build_permutation
from saucier.objectives.replaced_tokens import build_replaced


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
    return BUILDERS[config.kind](config, given)


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
