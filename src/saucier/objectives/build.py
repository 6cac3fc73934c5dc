"""From an objective's config to its two halves: the corruption for the data side, the loss for the training loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Corruption, Objective, ObjectiveInputs
from saucier.objectives.batch_layout import EncoderDecoderLayout, PackedPairLayout, choose_pair_layout
from saucier.objectives.bidirectional import BidirectionalCorruption, BothDirections
from saucier.objectives.causal import (
    build_causal,
)
from saucier.objectives.denoising import build_noisy
from saucier.objectives.masked import (
    build_masked,
    build_masked_auxiliaries,
    build_parallel,
)
from saucier.objectives.mixture import MixedCorruption, MixedObjective, Turns
from saucier.objectives.model_checks import check_body
from saucier.objectives.pairs import (
    PairCorruption,
    ScheduledSampling,
    TargetLength,
    add_first_stage,
    build_conditional,
)
from saucier.objectives.permutation import build_permutation
from saucier.objectives.prediction import Prediction
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


def refuse_model(config: c.Single, given: ObjectiveInputs) -> None:
    """Raise `InputError` for a body that cannot learn an objective, in the words of the check before reading."""
    for found in () if given.body is None else check_body(config, given.body):
        path = ("objective", *found.path) if found.own else found.path
        raise InputError(found.what, where=".".join(path), remedy=found.remedy)


def build_objective(config: c.Single, given: ObjectiveInputs) -> tuple[Corruption[Any], Objective]:
    """Build both halves.

    Raises `InputError` for a body that cannot learn it, and when the tokenizer lacks a token that it needs.
    """
    refuse_model(config, given)
    match config:
        case c.Causal():
            return build_causal(config, given)
        case c.Bidirectional(softmax=softmax):
            return BidirectionalCorruption(), BothDirections(softmax)
        case c.Masked():
            return build_masked(config, given), Prediction(beside=build_masked_auxiliaries(config, given))
        case c.TranslationMasked(masking=masking) | c.MaskedSides(masking=masking):
            hiding, objective = build_objective(masking, given)
            return build_parallel(config, hiding, given), objective
        case c.SequenceToSequence(label_smoothing=smoothing, truth=truth, packing=packing):
            plain = Prediction(smoothing)
            learned = ScheduledSampling(plain, truth) if truth else plain
            form = choose_pair_layout(given)
            form = PackedPairLayout(form, packing.length) if packing and isinstance(form,
                                                                                    EncoderDecoderLayout) else form
            return PairCorruption(form), add_first_stage(learned, config.first_stage, given.steps)
        case c.ConditionalMasked(label_smoothing=smoothing):
            return build_conditional(config, given), Prediction(smoothing, (TargetLength(),))
        case c.Replaced():
            return build_replaced(config, given)
        case c.Permutation():
            return build_permutation(config, given)
        case _:
            return build_noisy(config, given), Prediction()
