"""What every objective over tokens has to beat: each target said by its share of the training targets alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saucier.objectives.base import IGNORED, Batch
from saucier.objectives.build import Lesson
from saucier.objectives.config import Causal
from saucier.recipes import Recipe
from saucier.runs.pantry import Store
from saucier.runs.study import Cutting, make_evaluator, training_batches
from saucier.text.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator, MixedEvaluator
from saucier.training.processes import Processes

MOST_TARGETS = 200_000
"""Training targets of each lesson that are counted at most."""
UNSEEN = 0.5
"""Added to every count, so that a token which was never a target is not impossible."""


def loss_by_frequency(recipe: Recipe, tokenizer: Tokenizer, stores: tuple[Store, Store],
                      lessons: Sequence[Lesson]) -> float | None:
    """Return nats a held-out target, under the shares of the targets in the training text.

    `stores`: the training text and the held-out one. None where the recipe wants no such comparison, where an n-gram
    model makes a better one (causal), and where no tokens are told first of all (replaced tokens).
    """
    told = all(one.objective.parts[0] == "tokens" and not isinstance(one.config, Causal) for one in lessons)
    if not told or "unigram" not in recipe.evaluation.baselines:
        return None
    train, held_out = stores
    cutting, nats, targets = Cutting(recipe, tokenizer), 0.0, 0
    for lesson in lessons:
        surprise = -np.log(shares(learned(cutting, train, lesson), tokenizer.target.vocab_size))
        evaluator = make_evaluator(recipe, tokenizer, held_out, (lesson,), whole=True, processes=Processes())
        assert isinstance(evaluator, Evaluator | MixedEvaluator), "what measures one lesson"
        for ids in targets_of(batch for part in leaves(evaluator) for batch in part.batches()):
            nats, targets = nats + float(surprise[ids].sum()), targets + len(ids)
    return nats / max(1, targets)


def learned(cutting: Cutting, store: Store, lesson: Lesson) -> Iterator[Batch]:
    """Yield the training batches of one epoch, corrupted as training does."""
    batches, seed = training_batches(cutting, store, lesson), cutting.recipe.training.seed
    for step in range(batches.steps_per_epoch):
        yield lesson.corruption(batches[step], seed=seed, step=step)


def shares(batches: Iterable[Batch], vocab: int) -> NDArray[np.float64]:
    """Return how often each id is a target, of the first batches. Shapes: -> [vocab]."""
    counts, seen = np.full(vocab, UNSEEN), 0
    for ids in targets_of(batches):
        counts += np.bincount(ids, minlength=vocab)
        seen += len(ids)
        if seen >= MOST_TARGETS:
            break
    shared: NDArray[np.float64] = counts / counts.sum()
    return shared


def targets_of(batches: Iterable[Batch]) -> Iterator[NDArray[np.int64]]:
    """Yield the ids that each batch asks for."""
    for batch in batches:
        labels: Tensor = batch["labels"]
        yield labels[labels != IGNORED].numpy()


def leaves(evaluator: Evaluator | MixedEvaluator) -> Iterator[Evaluator]:
    """Yield what measures each part."""
    if isinstance(evaluator, Evaluator):
        yield evaluator
    else:
        for part in evaluator.parts:
            yield from leaves(part)
