"""From a recipe and its stores to what the loop takes: batches, corruption, objective, and the held-out evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from saucier.config import Transformer, remembered_tokens
from saucier.errors import InputError
from saucier.objectives.base import Given
from saucier.objectives.build import Lesson, joint, lessons, turns_of
from saucier.objectives.fit import tells_languages
from saucier.objectives.mixture import MixedBatches
from saucier.objectives.parallel import ParallelCorruption
from saucier.recipes import Recipe
from saucier.runs.pantry import Store
from saucier.runs.told import times, token_ids
from saucier.text.batches import (
    Batches,
    BucketedPairs,
    ConsecutiveEvaluation,
    ConsecutiveRows,
    DocumentRows,
    Ends,
    EvaluationDocuments,
    EvaluationPairs,
    EvaluationRows,
    Limits,
    PackedRows,
    SentencePairs,
    SentenceRows,
)
from saucier.text.collocations import Collocations
from saucier.text.config import LanguageData, languages_of
from saucier.text.language_rows import LanguageBatches, OneLanguage, told
from saucier.text.languages import LanguageStore, sampling_shares
from saucier.text.material import (
    AtDocuments,
    Consecutive,
    DocumentSentences,
    Drawn,
    FullSentences,
    Pairs,
    Running,
    TwoSegments,
    TwoSentences,
)
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
class InLanguage:
    """Batches that end, of one language, which their rows tell where it is given."""

    batches: Countable
    language: int | None

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> Any:
        return told(self.batches[step], self.language)


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

    @property
    def model(self) -> Transformer:
        """The model that will learn."""
        return self.recipe.model_for(self.tokenizer.vocab_size)

    def row_by_row(self) -> Cutting:
        """The same in batches of one row."""
        one = self.recipe.training.model_copy(update={"batch": 1})
        return replace(self, recipe=self.recipe.model_copy(update={"training": one}))


def given(recipe: Recipe, tokenizer: Tokenizer, collocations: Collocations | None = None) -> Given:
    """Return what a recipe's objective is built from."""
    training = recipe.training
    return Given(token_ids(recipe, tokenizer), recipe.model_for(tokenizer.vocab_size), training.steps, training.length,
                 training.seed, collocations)


def make_lessons(recipe: Recipe, tokenizer: Tokenizer, collocations: Collocations | None = None) -> tuple[Lesson, ...]:
    """Build the objective of a recipe. Raises `InputError` where the tokenizer lacks a token that is needed."""
    return lessons(recipe.objective, given(recipe, tokenizer, collocations))


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
    measuring = Measuring(Cutting(recipe, tokenizer), whole, processes)
    parts = tuple(measuring.lesson(store, lesson) for lesson in lessons)
    if len(parts) == 1:
        return parts[0]
    return MixedEvaluator(tuple(one.weight for one in lessons), parts, tuple(names(lessons)))


@dataclass(frozen=True, slots=True)
class Measuring:
    """How held-out text is measured."""

    cutting: Cutting
    whole: bool
    processes: Processes

    def lesson(self, store: Store, lesson: Lesson) -> Evaluator | MixedEvaluator:
        """Return what measures one lesson, on each language by itself where there are several."""
        if isinstance(lesson.corruption, ParallelCorruption):
            return self.sides(store, lesson, lesson.corruption)
        if not isinstance(store, LanguageStore):
            return self.one(lesson, held_out_batches(self.cutting, store, lesson, whole=self.whole), 1)
        parts = tuple(self.one(lesson, self.language(one, lesson, number), len(store.members))
                      for number, one in enumerate(store.members.values()))
        return MixedEvaluator(tuple(language_shares(self.cutting, store)), parts, tuple(store.members))

    def sides(self, store: Store, lesson: Lesson, corruption: ParallelCorruption) -> MixedEvaluator:
        """Return what measures the tokens of each language of pairs, the same ones hidden each time."""
        found = languages_of(self.cutting.recipe.data)
        alone = [replace(lesson, corruption=replace(corruption, language=number)) for number in range(len(found))]
        parts = tuple(self.one(one, held_out_batches(self.cutting, store, one, whole=self.whole), 1) for one in alone)
        return MixedEvaluator((1.0,) * len(found), parts, found)

    def language(self, store: TokenStore, lesson: Lesson, number: int) -> Countable:
        """Return the held-out batches of one language."""
        return InLanguage(held_out_batches(self.cutting, store, lesson, whole=self.whole),
                          number if tells_languages(lesson.config, self.cutting.model) else None)

    def one(self, lesson: Lesson, batches: Countable, parts: int) -> Evaluator:
        """Return what measures one lesson on some batches, which are one of `parts` to share the tokens among."""
        targets = None if self.whole else self.cutting.recipe.evaluation.tokens_while_training
        rows: Iterable[Any] = First(batches, targets and max(1, targets // parts))
        return Evaluator(rows, lesson.corruption, lesson.objective.held_out(), self.cutting.recipe.training.seed,
                         self.processes)


def names(lessons: Sequence[Lesson]) -> Iterator[str]:
    """Call each lesson by its kind, with a number where there are several of a kind."""
    kinds = [lesson.config.kind for lesson in lessons]
    for number, kind in enumerate(kinds):
        yield kind if kinds.count(kind) == 1 else f"{kind}_{kinds[:number + 1].count(kind)}"


def training_batches(cutting: Cutting, store: Store, lesson: Lesson) -> Batches[Any]:
    """Return the endless batches of a lesson."""
    training, corruption = cutting.recipe.training, lesson.corruption
    if isinstance(store, LanguageStore) and not isinstance(lesson.material, Pairs):
        return language_batches(cutting, store, lesson)
    match lesson.material, store:
        case Pairs(), PairStore():
            return BucketedPairs(store, limits(cutting, lesson), seed=training.seed, times=times(cutting.recipe, store))
        case (TwoSegments() | TwoSentences()) as kind, TokenStore():
            return SentencePairs(store, kind, batch=training.batch, **framed(cutting))
        case (FullSentences() | DocumentSentences()) as kind, TokenStore():
            return SentenceRows(store, kind, batch=training.batch, **framed(cutting))
        case Running(order=Consecutive()), TokenStore():
            return ConsecutiveRows(store, length=corruption.row_length(training.length), batch=training.batch,
                                   seed=training.seed, overlap=corruption.overlap)
        case Running(borders=AtDocuments()), TokenStore():
            return DocumentRows(store, length=corruption.row_length(training.length), batch=training.batch,
                                seed=training.seed, overlap=corruption.overlap)
        case Running(borders=borders), TokenStore():
            return PackedRows(store, length=corruption.row_length(training.length), batch=training.batch,
                              seed=training.seed, overlap=corruption.overlap, shift=isinstance(borders, Drawn))
    raise misplaced(lesson)


def held_out_batches(cutting: Cutting, store: Store, lesson: Lesson, *, whole: bool) -> Countable:
    """Return the held-out batches of a lesson."""
    evaluation, corruption = cutting.recipe.evaluation, lesson.corruption
    match lesson.material, store:
        case Pairs(), PairStore():
            return EvaluationPairs(store, limits(cutting, lesson))
        case (TwoSegments() | TwoSentences()) as kind, TokenStore():
            return OneEpoch(SentencePairs(store, kind, batch=evaluation.batch, where="data.held_out",
                                          **framed(cutting)))
        case (FullSentences() | DocumentSentences()) as kind, TokenStore():
            return OneEpoch(SentenceRows(store, kind, batch=evaluation.batch, **framed(cutting)))
        case Running(order=Consecutive()), TokenStore():
            return ConsecutiveEvaluation(store, length=corruption.row_length(cutting.recipe.training.length),
                                         batch=evaluation.batch, overlap=corruption.overlap,
                                         before=remembered_tokens(cutting.model) or 0)
        case Running(borders=AtDocuments()), TokenStore():
            return EvaluationDocuments(store, length=corruption.row_length(cutting.recipe.training.length),
                                       batch=evaluation.batch, overlap=corruption.overlap)
        case Running(), TokenStore():
            stride = evaluation.stride if whole and corruption.overlap else None
            return EvaluationRows(store, length=corruption.row_length(cutting.recipe.training.length),
                                  batch=evaluation.batch, overlap=corruption.overlap, stride=stride)
    raise misplaced(lesson)


def language_batches(cutting: Cutting, store: LanguageStore, lesson: Lesson) -> LanguageBatches:
    """Return rows of several languages, each cut as those of one."""
    training, told = cutting.recipe.training, tells_languages(lesson.config, cutting.model)
    members = [OneLanguage(training_batches(cutting.row_by_row(), one, lesson), number if told else None)
               for number, one in enumerate(store.members.values())]
    return LanguageBatches(members, language_shares(cutting, store), batch=training.batch, seed=training.seed)


def language_shares(cutting: Cutting, store: LanguageStore) -> NDArray[np.float64]:
    """Return how often each language comes. Shapes: -> [N]."""
    assert isinstance(cutting.recipe.data, LanguageData), "a store of languages is made of nothing else"
    return sampling_shares(store.sizes, cutting.recipe.data.alpha)


def misplaced(lesson: Lesson) -> InputError:
    """Return the error for a text that is not of the kind that an objective reads."""
    wanted = "pairs" if isinstance(lesson.material, Pairs) else "text"
    return InputError(f"{lesson.config.kind} learns from other data", where="data.kind", remedy=f"use kind: {wanted}")


class Frame(TypedDict):
    """Arguments that all rows of sentences share."""

    length: int
    cls: int
    sep: int
    seed: int


def framed(cutting: Cutting) -> Frame:
    """Return the length of rows of sentences, and what stands around them."""
    tokenizer, training = cutting.tokenizer, cutting.recipe.training
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("rows of sentences need the tokens cls and sep", where="tokenizer.special",
                         remedy="name them, such as [CLS] and [SEP]")
    return {"length": training.length, "cls": tokenizer.cls_id, "sep": tokenizer.sep_id, "seed": training.seed}


def limits(cutting: Cutting, lesson: Lesson) -> Limits:
    """Return how large a batch of pairs may be."""
    training, tokenizer = cutting.recipe.training, cutting.tokenizer
    return Limits(batch=training.batch, length=lesson.corruption.row_length(training.length), ends=ends(tokenizer),
                  target_ends=ends(tokenizer.target))


def ends(tokenizer: Tokenizer) -> Ends:
    """Return how a tokenizer ends a text."""
    return Ends(tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id, tokenizer.pad_id or 0)
