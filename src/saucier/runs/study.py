"""From a recipe and its stores to what the loop takes: batches, corruption, objective, and the held-out evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from saucier.errors import InputError
from saucier.objectives.base import Corruption, TokenIds
from saucier.objectives.build import build_objective
from saucier.objectives.config import Masked
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
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator
from saucier.training.processes import Processes
from saucier.training.update import Study


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


def make_study(recipe: Recipe, tokenizer: Tokenizer, store: Store) -> Study:
    """Make what the loop learns from. Raises `InputError` where the tokenizer lacks a token that is needed."""
    corruption, objective = build_objective(recipe.objective, TokenIds.of(tokenizer))
    return Study(training_batches(recipe, tokenizer, store, corruption), corruption, objective)


def make_evaluator(recipe: Recipe, tokenizer: Tokenizer, store: Store, *, whole: bool,
                   processes: Processes) -> Evaluator:
    """Make what measures the loss on held-out text: `whole`, or the quicker look that training takes now and then."""
    corruption, objective = build_objective(recipe.objective, TokenIds.of(tokenizer))
    rows: Iterable[Any] = First(held_out_batches(recipe, tokenizer, store, corruption, whole=whole),
                                None if whole else recipe.evaluation.tokens_while_training)
    return Evaluator(rows, corruption, objective, recipe.training.seed, processes)


def training_batches(recipe: Recipe, tokenizer: Tokenizer, store: Store, corruption: Corruption[Any]) -> Batches[Any]:
    """Return the endless batches of a recipe."""
    training = recipe.training
    if isinstance(store, PairStore):
        return BucketedPairs(store, limits(recipe, tokenizer), seed=training.seed)
    if wants_sentences(recipe):
        return sentence_pairs(recipe, tokenizer, store, training.batch)
    static = isinstance(recipe.objective, Masked) and not recipe.objective.dynamic
    return PackedRows(store, length=corruption.row_length(training.length), batch=training.batch, seed=training.seed,
                      overlap=corruption.overlap, shift=not static)


def held_out_batches(recipe: Recipe, tokenizer: Tokenizer, store: Store, corruption: Corruption[Any], *,
                     whole: bool) -> Countable:
    """Return the held-out batches of a recipe."""
    evaluation = recipe.evaluation
    if isinstance(store, PairStore):
        return EvaluationPairs(store, limits(recipe, tokenizer))
    if wants_sentences(recipe):
        return OneEpoch(sentence_pairs(recipe, tokenizer, store, evaluation.batch))
    length = corruption.row_length(recipe.training.length)
    stride = evaluation.stride if whole and corruption.overlap else None
    return EvaluationRows(store, length=length, batch=evaluation.batch, overlap=corruption.overlap, stride=stride)


def wants_sentences(recipe: Recipe) -> bool:
    """Whether the objective learns from pairs of sentences."""
    return isinstance(recipe.objective, Masked) and recipe.objective.next_sentence is not None


def sentence_pairs(recipe: Recipe, tokenizer: Tokenizer, store: TokenStore, batch: int) -> SentencePairs:
    """Return BERT's rows of two sentences."""
    next_sentence = recipe.objective.next_sentence if isinstance(recipe.objective, Masked) else None
    if tokenizer.cls_id is None or tokenizer.sep_id is None or next_sentence is None:
        raise InputError("next-sentence prediction needs the tokens cls and sep", where="tokenizer.special",
                         remedy="name them, such as [CLS] and [SEP]")
    return SentencePairs(store, length=recipe.training.length, batch=batch, cls=tokenizer.cls_id, sep=tokenizer.sep_id,
                         seed=recipe.training.seed, random_next=1 - next_sentence.real)


def limits(recipe: Recipe, tokenizer: Tokenizer) -> Limits:
    """Return how large a batch of pairs may be."""
    return Limits(batch=recipe.training.batch, length=recipe.training.length, end=tokenizer.eos_id,
                  pad=tokenizer.pad_id or 0)
