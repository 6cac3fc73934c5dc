"""From a recipe and its stores to what the loop takes: batches, corruption, objective, and the held-out evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from saucier.errors import InputError
from saucier.objectives.base import Given, TokenIds
from saucier.objectives.build import Lesson, joint, lessons, turns_of
from saucier.objectives.mixture import MixedBatches
from saucier.recipes import Recipe
from saucier.runs.pantry import Store
from saucier.text.batches import (
    Batches,
    BucketedPairs,
    EvaluationPairs,
    EvaluationRows,
    Limits,
    PackedRows,
    SentencePairs,
)
from saucier.text.material import Pairs, Running, TwoSegments
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator, MixedEvaluator
from saucier.training.processes import Processes
from saucier.training.update import Evaluate, Study


class Countable(Protocol):
    """Batches that end."""

    def __len__(self) -> int: ...

    def __getitem__(self, step: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class First:
    """The first batches of an evaluation, until about `targets` tokens were seen; all of them where that is None."""

    batches: Countable
    targets: int | None = None

    def __iter__(self) -> Iterator[Any]:
        seen = 0
        for step in range(len(self.batches)):
            if self.targets is not None and seen >= self.targets:
                return
            rows = self.batches[step]
            seen += int(rows.mask.sum() if hasattr(rows, "mask") else rows.target_lengths.sum())
            yield rows


@dataclass(frozen=True, slots=True)
class OneEpoch:
    """Endless batches, ended after one epoch; for those that have no order of their own to be measured in."""

    batches: Batches[Any]

    def __len__(self) -> int:
        return self.batches.steps_per_epoch

    def __getitem__(self, step: int) -> Any:
        return self.batches[step]


@dataclass(frozen=True, slots=True)
class Cutting:
    """What decides how rows are cut, beside the lesson."""

    recipe: Recipe
    tokenizer: Tokenizer


def given(recipe: Recipe, tokenizer: Tokenizer) -> Given:
    """Return what a recipe's objective is built from."""
    training = recipe.training
    return Given(TokenIds.of(tokenizer), recipe.model_for(tokenizer.vocab_size), training.steps, training.length,
                 training.seed)


def make_lessons(recipe: Recipe, tokenizer: Tokenizer) -> tuple[Lesson, ...]:
    """Build the objective of a recipe. Raises `InputError` where the tokenizer lacks a token that is needed."""
    return lessons(recipe.objective, given(recipe, tokenizer))


def make_study(recipe: Recipe, tokenizer: Tokenizer, store: Store, lessons: Sequence[Lesson]) -> Study:
    """Make what the loop learns from."""
    cutting = Cutting(recipe, tokenizer)
    batches = tuple(training_batches(cutting, store, lesson) for lesson in lessons)
    seed = recipe.training.seed
    mixed = batches[0] if len(batches) == 1 else MixedBatches(turns_of(lessons, seed), batches)
    return Study(mixed, *joint(lessons, seed))


def make_evaluator(recipe: Recipe, tokenizer: Tokenizer, store: Store, lessons: Sequence[Lesson], *, whole: bool,
                   processes: Processes) -> Evaluate:
    """Make what measures the loss on held-out text: `whole`, or the quicker look that training takes now and then."""
    cutting = Cutting(recipe, tokenizer)
    targets = None if whole else recipe.evaluation.tokens_while_training
    parts = []
    for lesson in lessons:
        rows: Iterable[Any] = First(held_out_batches(cutting, store, lesson, whole=whole), targets)
        parts.append(Evaluator(rows, lesson.corruption, lesson.objective.held_out(), recipe.training.seed, processes))
    if len(parts) == 1:
        return parts[0]
    return MixedEvaluator(tuple(one.weight for one in lessons), tuple(parts), tuple(names(lessons)))


def names(lessons: Sequence[Lesson]) -> Iterator[str]:
    """Call each lesson by its kind, with a number where there are several of a kind."""
    kinds = [lesson.config.kind for lesson in lessons]
    for number, kind in enumerate(kinds):
        yield kind if kinds.count(kind) == 1 else f"{kind}_{kinds[:number + 1].count(kind)}"


def training_batches(cutting: Cutting, store: Store, lesson: Lesson) -> Batches[Any]:
    """Return the endless batches of a lesson."""
    training, corruption = cutting.recipe.training, lesson.corruption
    match lesson.material, store:
        case Pairs(), PairStore():
            return BucketedPairs(store, limits(cutting), seed=training.seed)
        case TwoSegments(real=real), TokenStore():
            return sentence_pairs(cutting, store, training.batch, real)
        case Running(shifted=shifted), TokenStore():
            return PackedRows(store, length=corruption.row_length(training.length), batch=training.batch,
                              seed=training.seed, overlap=corruption.overlap, shift=shifted)
    raise misplaced(lesson)


def held_out_batches(cutting: Cutting, store: Store, lesson: Lesson, *, whole: bool) -> Countable:
    """Return the held-out batches of a lesson."""
    evaluation, corruption = cutting.recipe.evaluation, lesson.corruption
    match lesson.material, store:
        case Pairs(), PairStore():
            return EvaluationPairs(store, limits(cutting))
        case TwoSegments(real=real), TokenStore():
            return OneEpoch(sentence_pairs(cutting, store, evaluation.batch, real))
        case Running(), TokenStore():
            stride = evaluation.stride if whole and corruption.overlap else None
            return EvaluationRows(store, length=corruption.row_length(cutting.recipe.training.length),
                                  batch=evaluation.batch, overlap=corruption.overlap, stride=stride)
    raise misplaced(lesson)


def misplaced(lesson: Lesson) -> InputError:
    """Return the error for a text that is not of the kind that an objective reads."""
    wanted = "pairs" if isinstance(lesson.material, Pairs) else "text"
    return InputError(f"{lesson.config.kind} learns from other data", where="data.kind", remedy=f"use kind: {wanted}")


def sentence_pairs(cutting: Cutting, store: TokenStore, batch: int, real: float) -> SentencePairs:
    """Return BERT's rows of two pieces of text."""
    tokenizer, training = cutting.tokenizer, cutting.recipe.training
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("next-sentence prediction needs the tokens cls and sep", where="tokenizer.special",
                         remedy="name them, such as [CLS] and [SEP]")
    return SentencePairs(store, length=training.length, batch=batch, cls=tokenizer.cls_id, sep=tokenizer.sep_id,
                         seed=training.seed, random_next=1 - real)


def limits(cutting: Cutting) -> Limits:
    """Return how large a batch of pairs may be."""
    training, tokenizer = cutting.recipe.training, cutting.tokenizer
    return Limits(batch=training.batch, length=training.length, end=tokenizer.eos_id, pad=tokenizer.pad_id or 0)
