"""From an objective's config to its two halves: the corruption for the data side, the loss for the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saucier.errors import InputError
from saucier.objectives import config as c
from saucier.objectives.base import Corruption, Given, Objective
from saucier.objectives.bidirectional import BidirectionalCorruption, BothDirections
from saucier.objectives.boundary import build_boundary
from saucier.objectives.carrying import Carrying, CarryingCorruption
from saucier.objectives.corruptions import PairCorruption, build_causal
from saucier.objectives.deeper import build_deeper
from saucier.objectives.fit import body_misfits
from saucier.objectives.forms import PackedSides, TwoSides, pair_form
from saucier.objectives.masked import build_masked
from saucier.objectives.material import material
from saucier.objectives.mixture import MixedCorruption, MixedObjective, Turns
from saucier.objectives.parallel import build_parallel
from saucier.objectives.permutation import build_permutation
from saucier.objectives.prediction import Beside, NextSentence, Prediction
from saucier.objectives.replaced import build_replaced
from saucier.objectives.sampling import ScheduledSampling
from saucier.objectives.spans import build_noisy
from saucier.objectives.staged import Staged
from saucier.objectives.whole_text import TargetLength, build_conditional
from saucier.text.material import Material


@dataclass(frozen=True, slots=True)
class Lesson:
    """An objective, built; a mixture has several."""

    config: c.Single
    material: Material
    """The rows that it learns from."""
    corruption: Corruption[Any]
    objective: Objective
    weight: float = 1.0
    """How often its turn comes."""


def lessons(config: c.ObjectiveConfig, given: Given) -> tuple[Lesson, ...]:
    """Build an objective, or every part of a mixture. Raises `InputError` as `build_objective`."""
    parts = config.parts if isinstance(config, c.Mixture) else (c.MixturePart(objective=config),)
    return tuple(Lesson(part.objective, material(part.objective), *build_objective(part.objective, given),
                        weight=part.weight) for part in parts)


def turns_of(lessons: Sequence[Lesson], seed: int) -> Turns:
    """Return whose turn it is at which step."""
    return Turns(tuple(lesson.weight for lesson in lessons), seed)


def joint(lessons: Sequence[Lesson], seed: int) -> tuple[Corruption[Any], Objective]:
    """Return the two halves of all lessons together."""
    if len(lessons) == 1:
        return lessons[0].corruption, lessons[0].objective
    turns = turns_of(lessons, seed)
    return (MixedCorruption(turns, tuple(lesson.corruption for lesson in lessons)),
            MixedObjective(turns, tuple(lesson.objective for lesson in lessons)))


def refuse(config: c.Single, given: Given) -> None:
    """Raise `InputError` for a body that cannot learn an objective, in the words of the check before reading."""
    for found in () if given.body is None else body_misfits(config, given.body):
        path = ("objective", *found.path) if found.own else found.path
        raise InputError(found.what, where=".".join(path), remedy=found.remedy)


def build_objective(config: c.Single, given: Given) -> tuple[Corruption[Any], Objective]:
    """Build both halves.

    Raises `InputError` for a body that cannot learn it, and when the tokenizer lacks a token that it needs.
    """
    refuse(config, given)
    match config:
        case c.Causal():
            return causal(config, given)
        case c.Bidirectional(softmax=softmax):
            return BidirectionalCorruption(), BothDirections(softmax)
        case c.Masked():
            return build_masked(config, given), Prediction(beside=masked_companions(config, given))
        case c.TranslationMasked(masking=masking) | c.MaskedSides(masking=masking):
            hiding, objective = build_objective(masking, given)
            return build_parallel(config, hiding, given), objective
        case c.SequenceToSequence(label_smoothing=smoothing, truth=truth, packing=packing):
            plain = Prediction(smoothing)
            learned = ScheduledSampling(plain, truth) if truth else plain
            form = pair_form(given)
            form = PackedSides(form, packing.length) if packing and isinstance(form, TwoSides) else form
            return PairCorruption(form), staged(learned, config.first_stage, given.steps)
        case c.ConditionalMasked(label_smoothing=smoothing):
            return build_conditional(config, given), Prediction(smoothing, (TargetLength(),))
        case c.Replaced():
            return build_replaced(config, given)
        case c.Permutation():
            return build_permutation(config, given)
        case _:
            return build_noisy(config, given), Prediction()


def causal(config: c.Causal, given: Given) -> tuple[Corruption[Any], Objective]:
    """Build both halves of next tokens."""
    corruption = build_causal(config, given)
    learned = Prediction(config.label_smoothing, (build_deeper(config.deeper, given),) if config.deeper else ())
    match config.rows:
        case c.ShuffledRows() | c.DocumentRows():
            return corruption, learned
        case c.ConsecutiveRows():
            return CarryingCorruption(corruption), Carrying(learned)


def staged(objective: Objective, stage: c.FirstStage | None, steps: int) -> Objective:
    """Put a first stage before an objective, where there is one."""
    return objective if stage is None else Staged(objective, stage, round(stage.share * steps))


def masked_companions(config: c.Masked, given: Given) -> tuple[Beside, ...]:
    """Build what is learned beside hidden tokens."""
    match config.relation:
        case c.NextSentence():
            sentences: tuple[Beside, ...] = (NextSentence(),)
        case c.SentenceOrder():
            sentences = (NextSentence("sentence-order accuracy"),)
        case None:
            sentences = ()
    return (*sentences, build_boundary(config.boundary, given)) if config.boundary else sentences
