"""From a recipe and its token stores to what the training loop takes: batches, corruption, objective, evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saucier.config import remembered_tokens
from saucier.errors import InputError
from saucier.jobs.pretraining.data import Store
from saucier.jobs.run.language_pairs import pair_languages, written_token_ids
from saucier.objectives.base import Corruption, ObjectiveInputs
from saucier.objectives.build import BuiltObjective, MixedBatches, build_objectives, join_objectives, plan_turns
from saucier.objectives.masked import ParallelCorruption
from saucier.recipes import Recipe
from saucier.text.collocations import Collocations
from saucier.text.config import LanguageData, list_languages
from saucier.text.languages import (
    LanguageBatches,
    LanguageStore,
    compute_sampling_shares,
    count_repeats,
    read_directions,
    set_language,
)
from saucier.text.rows.batch import Batches
from saucier.text.rows.bucketed import BatchLimits, BucketedPairs, PairEvaluation, TextEnds
from saucier.text.rows.kinds import RowKind
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
class FirstBatches:
    """The first batches of an evaluation, until about `targets` tokens were seen; all of them where that is None.

    `language` is written into their rows where it is given.
    """

    batches: Countable
    targets: int | None = None
    language: int | None = None

    def __iter__(self) -> Iterator[Any]:
        seen = 0
        for step in range(len(self.batches)):
            if self.targets is not None and seen >= self.targets:
                return
            rows = self.batches[step]
            seen += int(rows.mask.sum() if hasattr(rows, "mask") else rows.target_lengths.sum())
            yield set_language(rows, self.language)


@dataclass(frozen=True, slots=True)
class OneEpoch:
    """Endless batches, ended after one epoch; for those that have no order of their own to be measured in."""

    batches: Batches[Any]

    def __len__(self) -> int:
        return self.batches.steps_per_epoch

    def __getitem__(self, step: int) -> Any:
        return self.batches[step]


@dataclass(frozen=True, slots=True)
class RowCutter:
    """How the rows of one objective are cut from a store."""

    recipe: Recipe
    tokenizer: Tokenizer
    built: BuiltObjective

    @property
    def seed(self) -> int:
        """The seed of the training, which draws held-out rows, too."""
        return self.recipe.training.seed

    @property
    def running(self) -> dict[str, int]:
        """Arguments of all rows of running text."""
        corruption = self.built.corruption
        return {"length": corruption.row_length(self.recipe.training.length), "overlap": corruption.overlap}

    @property
    def sentences(self) -> dict[str, int]:
        """Arguments of all rows of sentences. Raises `InputError` where the tokenizer lacks what is around them."""
        if self.tokenizer.cls_id is None or self.tokenizer.sep_id is None:
            raise InputError("rows of sentences need the tokens cls and sep", where="tokenizer.special",
                             remedy="name them, such as [CLS] and [SEP]")
        return {"length": self.recipe.training.length, "cls": self.tokenizer.cls_id, "sep": self.tokenizer.sep_id,
                "seed": self.seed}

    @property
    def limits(self) -> BatchLimits:
        """How large a batch of pairs may be."""
        ends, target_ends = (TextEnds(one.sep_id if one.eos_id is None else one.eos_id, one.pad_id or 0)
                             for one in (self.tokenizer, self.tokenizer.target))
        return BatchLimits(batch=self.recipe.training.batch, length=self.running["length"], ends=ends,
                           target_ends=target_ends)

    @property
    def language_ids(self) -> bool:
        """Whether the language of each token must be known."""
        return self.built.config.needs_language_ids(self.recipe.model_for(self.tokenizer.vocab_size))

    def cut_training(self, store: Store, batch: int | None = None) -> Batches[Any]:
        """Return endless batches of `batch` rows (None: as many as the recipe says) of text, pairs, or languages."""
        size = batch or self.recipe.training.batch
        if not isinstance(store, LanguageStore):
            return ROWS[self.built.config.rows_read.kind][0](self, store, size)
        members = [self.cut_training(one, 1) for one in store.members.values()]
        return LanguageBatches(members, self.compute_shares(store), batch=size, seed=self.seed,
                               language_ids=self.language_ids)

    def cut_held_out(self, store: Store, *, whole: bool) -> Countable:
        """Return the held-out batches of text or pairs; `whole`: as slowly as the recipe says."""
        return ROWS[self.built.config.rows_read.kind][1](self, store, whole)

    def compute_shares(self, store: LanguageStore) -> NDArray[np.float64]:
        """Return how often each language comes. Shapes: -> [N]."""
        assert isinstance(self.recipe.data, LanguageData), "a store of languages is made of nothing else"
        return compute_sampling_shares(store.sizes, self.recipe.data.alpha)


def cut_sentence_pairs(cutter: RowCutter, store: TokenStore, batch: int, where: str = "data") -> SentencePairBatches:
    """Return rows of two pieces of text."""
    return SentencePairBatches(store, cutter.built.config.rows_read, batch=batch, where=where, **cutter.sentences)


def cut_sentences(cutter: RowCutter, store: TokenStore, batch: int) -> SentenceBatches:
    """Return rows of whole sentences."""
    return SentenceBatches(store, cutter.built.config.rows_read, batch=batch, **cutter.sentences)


def cut_pairs(cutter: RowCutter, store: PairStore, _: int) -> BucketedPairs:
    """Return pairs of similar length; those of several languages come as often as their direction's share says."""
    languages = pair_languages(cutter.recipe)
    times = None if languages is None else count_repeats(read_directions(store), languages.alpha)
    return BucketedPairs(store, cutter.limits, seed=cutter.seed, times=times)


def cut_running_evaluation(cutter: RowCutter, store: TokenStore, whole: bool) -> PackedEvaluation:
    """Return rows of running text, which overlap where the recipe says so and every token is a target."""
    evaluation, running = cutter.recipe.evaluation, cutter.running
    return PackedEvaluation(store, batch=evaluation.batch, **running,
                            stride=evaluation.stride if whole and running["overlap"] else None)


def cut_consecutive_evaluation(cutter: RowCutter, store: TokenStore, whole: bool) -> ConsecutiveEvaluation:
    """Return rows that go on, after as many tokens as the model remembers."""
    before = remembered_tokens(cutter.recipe.model_for(cutter.tokenizer.vocab_size)) or 0
    return ConsecutiveEvaluation(store, batch=cutter.recipe.evaluation.batch, before=before, **cutter.running)


Train = Callable[[RowCutter, Any, int], Batches[Any]]
"""Cutter, store, and rows of a batch."""
Measure = Callable[[RowCutter, Any, bool], Countable]
"""Cutter, store, and whether all that is held out is measured, or a part of it while training."""
SENTENCE_PAIRS: tuple[Train, Measure] = (
    cut_sentence_pairs,
    lambda cutter, store, _: OneEpoch(cut_sentence_pairs(cutter, store, cutter.recipe.evaluation.batch,
                                                         "data.held_out")))
SENTENCES: tuple[Train, Measure] = (
    cut_sentences, lambda cutter, store, _: OneEpoch(cut_sentences(cutter, store, cutter.recipe.evaluation.batch)))
ROWS: Mapping[RowKind, tuple[Train, Measure]] = {
    "running": (
        lambda cutter, store, batch: PackedBatches(store, batch=batch, seed=cutter.seed, **cutter.running,
                                                   shift=not cutter.built.config.rows_read.fixed),
        cut_running_evaluation),
    "documents": (
        lambda cutter, store, batch: DocumentBatches(store, batch=batch, seed=cutter.seed, **cutter.running),
        lambda cutter, store, _: DocumentEvaluation(store, batch=cutter.recipe.evaluation.batch, **cutter.running)),
    "consecutive": (
        lambda cutter, store, batch: ConsecutiveBatches(store, batch=batch, seed=cutter.seed, **cutter.running),
        cut_consecutive_evaluation),
    "segment_pairs": SENTENCE_PAIRS,
    "sentence_pairs": SENTENCE_PAIRS,
    "full_sentences": SENTENCES,
    "document_sentences": SENTENCES,
    "text_pairs": (
        cut_pairs,
        lambda cutter, store, _: PairEvaluation(store, cutter.limits)),
}
"""How each kind of rows is cut: to learn from, without an end, and to be measured on."""


def build_run_objectives(recipe: Recipe, tokenizer: Tokenizer,
                         collocations: Collocations | None = None) -> tuple[BuiltObjective, ...]:
    """Build the objective of a recipe. Raises `InputError` where the tokenizer lacks a token that is needed."""
    training = recipe.training
    return build_objectives(recipe.objective, ObjectiveInputs(
        written_token_ids(recipe, tokenizer), recipe.model_for(tokenizer.vocab_size), training.steps, training.length,
        training.seed, collocations))


def make_training_data(recipe: Recipe, tokenizer: Tokenizer, store: Store,
                       objectives: Sequence[BuiltObjective]) -> TrainingData:
    """Make what the loop learns from."""
    batches = tuple(RowCutter(recipe, tokenizer, built).cut_training(store) for built in objectives)
    seed = recipe.training.seed
    mixed = batches[0] if len(batches) == 1 else MixedBatches(plan_turns(objectives, seed), batches)
    return TrainingData(mixed, *join_objectives(objectives, seed))


def make_evaluator(recipe: Recipe, tokenizer: Tokenizer, store: Store, objectives: Sequence[BuiltObjective], *,
                   whole: bool, processes: Processes) -> Evaluate:
    """Make what measures the loss on held-out text: `whole`, or the quicker look that training takes now and then."""
    parts = tuple(build_evaluator(RowCutter(recipe, tokenizer, built), store, whole=whole, processes=processes)
                  for built in objectives)
    if len(parts) == 1:
        return parts[0]
    kinds = [built.config.kind for built in objectives]
    names = tuple(kind if kinds.count(kind) == 1 else f"{kind}_{kinds[:number + 1].count(kind)}"
                  for number, kind in enumerate(kinds))
    return MixedEvaluator(tuple(built.weight for built in objectives), parts, names)


def build_evaluator(cutter: RowCutter, store: Store, *, whole: bool,
                    processes: Processes) -> Evaluator | MixedEvaluator:
    """Return what measures one objective on held-out text, on each language by itself where there are several.

    Of pairs it is the tokens of each language, the same ones hidden each time.
    """
    recipe, built = cutter.recipe, cutter.built
    targets = None if whole else recipe.evaluation.tokens_while_training

    def build_part(part: Store, corruption: Corruption[Any], language: int | None = None, parts: int = 1) -> Evaluator:
        """Return what measures it on a store, one of `parts` that share the tokens of a quicker look."""
        rows = FirstBatches(cutter.cut_held_out(part, whole=whole), targets and max(1, targets // parts), language)
        return Evaluator(rows, corruption, built.objective.held_out(), recipe.training.seed, processes)

    if isinstance(built.corruption, ParallelCorruption):
        languages = list_languages(recipe.data)
        sides = tuple(build_part(store, replace(built.corruption, language=number)) for number in range(len(languages)))
        return MixedEvaluator((1.0,) * len(languages), sides, languages)
    if not isinstance(store, LanguageStore):
        return build_part(store, built.corruption)
    members = tuple(build_part(one, built.corruption, number if cutter.language_ids else None, len(store.members))
                    for number, one in enumerate(store.members.values()))
    return MixedEvaluator(tuple(cutter.compute_shares(store)), members, tuple(store.members))
