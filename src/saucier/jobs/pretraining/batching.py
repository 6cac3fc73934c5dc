"""From a recipe and its token stores to what the training loop takes: batches, corruption, objective, evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from saucier.config import Transformer, remembered_tokens
from saucier.errors import InputError
from saucier.jobs.pretraining.data import Store
from saucier.jobs.run.language_pairs import pair_languages, written_token_ids
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.build import BuiltObjective, build_objectives, join_objectives, plan_turns
from saucier.objectives.checks import needs_language_ids
from saucier.objectives.masked import ParallelCorruption
from saucier.objectives.mixture import MixedBatches
from saucier.recipes import Recipe
from saucier.text.collocations import Collocations
from saucier.text.config import LanguageData, list_languages
from saucier.text.languages import (
    LanguageBatches,
    LanguageMember,
    LanguageStore,
    compute_sampling_shares,
    count_repeats,
    read_directions,
    set_language,
)
from saucier.text.rows.batch import Batches
from saucier.text.rows.bucketed import BatchLimits, BucketedPairs, PairEvaluation, TextEnds
from saucier.text.rows.kinds import (
    ConsecutiveOrder,
    DocumentBorders,
    DocumentSentencesRequest,
    DrawnBorders,
    FullSentencesRequest,
    RunningRequest,
    SegmentPairRequest,
    SentencePairRequest,
    TextPairRequest,
)
from saucier.text.rows.running import (
    ConsecutiveBatches,
    ConsecutiveEvaluation,
    DocumentBatches,
    DocumentEvaluation,
    PackedBatches,
    PackedEvaluation,
)
from saucier.text.rows.sentences import SentenceBatches, SentencePairBatches
from saucier.text.rows.store import PairStore, TokenStore
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator, MixedEvaluator
from saucier.training.processes import Processes
from saucier.training.update import Evaluate, TrainingData


class Countable(Protocol):
    """Batches that end."""

    def __len__(self) -> int: ...

    def __getitem__(self, step: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class LanguageTaggedBatches:
    """Batches that end, of one language; where it is given, their rows have its number."""

    batches: Countable
    language: int | None

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> Any:
        return set_language(self.batches[step], self.language)


@dataclass(frozen=True, slots=True)
class FirstBatches:
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
class RowSettings:
    """What decides how rows are cut, in addition to the objective."""

    recipe: Recipe
    tokenizer: Tokenizer

    @property
    def model(self) -> Transformer:
        """The model that will learn."""
        return self.recipe.model_for(self.tokenizer.vocab_size)

    def row_by_row(self) -> RowSettings:
        """The same in batches of one row."""
        one = self.recipe.training.model_copy(update={"batch": 1})
        return replace(self, recipe=self.recipe.model_copy(update={"training": one}))


def build_run_objectives(recipe: Recipe, tokenizer: Tokenizer,
                         collocations: Collocations | None = None) -> tuple[BuiltObjective, ...]:
    """Build the objective of a recipe. Raises `InputError` where the tokenizer lacks a token that is needed."""
    training = recipe.training
    inputs = ObjectiveInputs(written_token_ids(recipe, tokenizer), recipe.model_for(tokenizer.vocab_size),
                             training.steps, training.length, training.seed, collocations)
    return build_objectives(recipe.objective, inputs)


def make_training_data(recipe: Recipe, tokenizer: Tokenizer, store: Store,
                       objectives: Sequence[BuiltObjective]) -> TrainingData:
    """Make what the loop learns from."""
    row_settings = RowSettings(recipe, tokenizer)
    batches = tuple(training_batches(row_settings, store, built) for built in objectives)
    seed = recipe.training.seed
    mixed = batches[0] if len(batches) == 1 else MixedBatches(plan_turns(objectives, seed), batches)
    return TrainingData(mixed, *join_objectives(objectives, seed))


def make_evaluator(recipe: Recipe, tokenizer: Tokenizer, store: Store, objectives: Sequence[BuiltObjective], *,
                   whole: bool, processes: Processes) -> Evaluate:
    """Make what measures the loss on held-out text: `whole`, or the quicker look that training takes now and then."""
    measuring = EvaluatorBuilder(RowSettings(recipe, tokenizer), whole, processes)
    parts = tuple(measuring.build(store, built) for built in objectives)
    if len(parts) == 1:
        return parts[0]
    kinds = [one.config.kind for one in objectives]
    names = (kind if kinds.count(kind) == 1 else f"{kind}_{kinds[:number + 1].count(kind)}"
             for number, kind in enumerate(kinds))
    return MixedEvaluator(tuple(one.weight for one in objectives), parts, tuple(names))


@dataclass(frozen=True, slots=True)
class EvaluatorBuilder:
    """How held-out text is measured."""

    row_settings: RowSettings
    whole: bool
    processes: Processes

    def build(self, store: Store, built: BuiltObjective) -> Evaluator | MixedEvaluator:
        """Return what measures one objective, on each language by itself where there are several."""
        if isinstance(built.corruption, ParallelCorruption):
            return self.sides(store, built, built.corruption)
        if not isinstance(store, LanguageStore):
            return self.one(built, held_out_batches(self.row_settings, store, built, whole=self.whole), 1)
        parts = tuple(self.one(built, self.language(one, built, number), len(store.members))
                      for number, one in enumerate(store.members.values()))
        return MixedEvaluator(tuple(language_shares(self.row_settings, store)), parts, tuple(store.members))

    def sides(self, store: Store, built: BuiltObjective, corruption: ParallelCorruption) -> MixedEvaluator:
        """Return what measures the tokens of each language of pairs, the same ones hidden each time."""
        found = list_languages(self.row_settings.recipe.data)
        alone = [replace(built, corruption=replace(corruption, language=number)) for number in range(len(found))]
        parts = tuple(self.one(one, held_out_batches(self.row_settings, store, one, whole=self.whole), 1)
                      for one in alone)
        return MixedEvaluator((1.0,) * len(found), parts, found)

    def language(self, store: TokenStore, built: BuiltObjective, number: int) -> Countable:
        """Return the held-out batches of one language."""
        return LanguageTaggedBatches(held_out_batches(self.row_settings, store, built, whole=self.whole),
                                     number if needs_language_ids(built.config, self.row_settings.model) else None)

    def one(self, built: BuiltObjective, batches: Countable, parts: int) -> Evaluator:
        """Return what measures one objective on some batches, which are one of `parts` to share the tokens among."""
        targets = None if self.whole else self.row_settings.recipe.evaluation.tokens_while_training
        rows: Iterable[Any] = FirstBatches(batches, targets and max(1, targets // parts))
        return Evaluator(rows, built.corruption, built.objective.held_out(), self.row_settings.recipe.training.seed,
                         self.processes)


def training_batches(row_settings: RowSettings, store: Store, built: BuiltObjective) -> Batches[Any]:
    """Return the endless batches of a objective."""
    training, corruption, known = row_settings.recipe.training, built.corruption, pair_languages(row_settings.recipe)
    if isinstance(store, LanguageStore) and not isinstance(built.material, TextPairRequest):
        return language_batches(row_settings, store, built)
    match built.material, store:
        case TextPairRequest(), PairStore():
            return BucketedPairs(store, batch_limits(row_settings, built), seed=training.seed,
                                 times=None if known is None else count_repeats(read_directions(store), known.alpha))
        case (SegmentPairRequest() | SentencePairRequest()) as kind, TokenStore():
            return SentencePairBatches(store, kind, batch=training.batch, **sentence_frame(row_settings))
        case (FullSentencesRequest() | DocumentSentencesRequest()) as kind, TokenStore():
            return SentenceBatches(store, kind, batch=training.batch, **sentence_frame(row_settings))
        case RunningRequest(order=ConsecutiveOrder()), TokenStore():
            return ConsecutiveBatches(store, length=corruption.row_length(training.length), batch=training.batch,
                                      seed=training.seed, overlap=corruption.overlap)
        case RunningRequest(borders=DocumentBorders()), TokenStore():
            return DocumentBatches(store, length=corruption.row_length(training.length), batch=training.batch,
                                   seed=training.seed, overlap=corruption.overlap)
        case RunningRequest(borders=borders), TokenStore():
            return PackedBatches(store, length=corruption.row_length(training.length), batch=training.batch,
                                 seed=training.seed, overlap=corruption.overlap,
                                 shift=isinstance(borders, DrawnBorders))
    raise wrong_data_error(built)


def held_out_batches(row_settings: RowSettings, store: Store, built: BuiltObjective, *, whole: bool) -> Countable:
    """Return the held-out batches of a objective."""
    evaluation, corruption = row_settings.recipe.evaluation, built.corruption
    match built.material, store:
        case TextPairRequest(), PairStore():
            return PairEvaluation(store, batch_limits(row_settings, built))
        case (SegmentPairRequest() | SentencePairRequest()) as kind, TokenStore():
            return OneEpoch(SentencePairBatches(store, kind, batch=evaluation.batch, where="data.held_out",
                                                **sentence_frame(row_settings)))
        case (FullSentencesRequest() | DocumentSentencesRequest()) as kind, TokenStore():
            return OneEpoch(SentenceBatches(store, kind, batch=evaluation.batch, **sentence_frame(row_settings)))
        case RunningRequest(order=ConsecutiveOrder()), TokenStore():
            return ConsecutiveEvaluation(store, length=corruption.row_length(row_settings.recipe.training.length),
                                         batch=evaluation.batch, overlap=corruption.overlap,
                                         before=remembered_tokens(row_settings.model) or 0)
        case RunningRequest(borders=DocumentBorders()), TokenStore():
            return DocumentEvaluation(store, length=corruption.row_length(row_settings.recipe.training.length),
                                      batch=evaluation.batch, overlap=corruption.overlap)
        case RunningRequest(), TokenStore():
            stride = evaluation.stride if whole and corruption.overlap else None
            return PackedEvaluation(store, length=corruption.row_length(row_settings.recipe.training.length),
                                    batch=evaluation.batch, overlap=corruption.overlap, stride=stride)
    raise wrong_data_error(built)


def language_batches(row_settings: RowSettings, store: LanguageStore, built: BuiltObjective) -> LanguageBatches:
    """Return rows of several languages, each cut as those of one."""
    training, tagged = row_settings.recipe.training, needs_language_ids(built.config, row_settings.model)
    members = [LanguageMember(training_batches(row_settings.row_by_row(), one, built), number if tagged else None)
               for number, one in enumerate(store.members.values())]
    return LanguageBatches(members, language_shares(row_settings, store), batch=training.batch, seed=training.seed)


def language_shares(row_settings: RowSettings, store: LanguageStore) -> NDArray[np.float64]:
    """Return how often each language comes. Shapes: -> [N]."""
    assert isinstance(row_settings.recipe.data, LanguageData), "a store of languages is made of nothing else"
    return compute_sampling_shares(store.sizes, row_settings.recipe.data.alpha)


def wrong_data_error(built: BuiltObjective) -> InputError:
    """Return the error for a text that is not of the kind that an objective reads."""
    wanted = "pairs" if isinstance(built.material, TextPairRequest) else "text"
    return InputError(f"{built.config.kind} learns from other data", where="data.kind", remedy=f"use kind: {wanted}")


class SentenceFrame(TypedDict):
    """Arguments that all rows of sentences share."""

    length: int
    cls: int
    sep: int
    seed: int


def sentence_frame(row_settings: RowSettings) -> SentenceFrame:
    """Return the length of rows of sentences, and what is around them."""
    tokenizer, training = row_settings.tokenizer, row_settings.recipe.training
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("rows of sentences need the tokens cls and sep", where="tokenizer.special",
                         remedy="name them, such as [CLS] and [SEP]")
    return {"length": training.length, "cls": tokenizer.cls_id, "sep": tokenizer.sep_id, "seed": training.seed}


def batch_limits(row_settings: RowSettings, built: BuiltObjective) -> BatchLimits:
    """Return how large a batch of pairs may be."""
    training, tokenizer = row_settings.recipe.training, row_settings.tokenizer
    return BatchLimits(batch=training.batch, length=built.corruption.row_length(training.length),
                       ends=text_ends(tokenizer), target_ends=text_ends(tokenizer.target))


def text_ends(tokenizer: Tokenizer) -> TextEnds:
    """Return how a tokenizer ends a text."""
    return TextEnds(tokenizer.sep_id if tokenizer.eos_id is None else tokenizer.eos_id, tokenizer.pad_id or 0)
