"""Scoring a trained run by a judge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch

from saucier.comparison.adapting import gone_on
from saucier.comparison.config import Adaptation, Classification, HeldOutLoss, Tagging
from saucier.comparison.preparation import Trial
from saucier.comparison.scores import Measure, Scores
from saucier.comparison.tagging import tagged
from saucier.comparison.transfer import fine_tuned_scores
from saucier.errors import WorkError
from saucier.loading import load
from saucier.model import Transformer
from saucier.objectives.build import joint
from saucier.recipes import Recipe
from saucier.runs.collocations import stored
from saucier.runs.folder import RunFolder, run_of
from saucier.runs.pantry import Store
from saucier.runs.scoring import foretells_all
from saucier.runs.study import make_evaluator, make_lessons
from saucier.text.config import PairData
from saucier.text.store import PairStore, TokenStore
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.training.evaluation import NLL, Evaluator, totals
from saucier.training.precision import Dtype, autocast
from saucier.training.processes import Processes
from saucier.training.resume import State, fill_modules, latest

UNITS, LARGEST = 200, 16
"""Blocks that are wanted, and the most rows' worth of tokens in one."""


def judged(trial: Trial) -> Scores:
    """Score the last weights of a trial's run. Raises `WorkError` where they are gone."""
    checkpoint = latest(trial.folder)
    if checkpoint is None:
        raise WorkError("has no whole checkpoint left to score", where=str(trial.folder),
                        remedy="remove the folder, and compare again")
    match trial.judge:
        case HeldOutLoss():
            return held_out_scores(trial, trial.recipe, checkpoint)
        case Adaptation():
            assert trial.asked is not None, "prepared with the judge"
            return held_out_scores(trial, trial.asked, gone_on(trial.folder, trial.asked))
        case Classification():
            model = load(checkpoint, dtype="float32")
            values = fine_tuned_scores(trial, trial.judge, model, load_tokenizer(trial.folder))
            measure = Measure(name="accuracy", better="higher", unit="texts")
            return Scores(judge=trial.judge, measure=measure, checkpoint=checkpoint.name, values=values,
                          weights=(1.0,) * len(values))
        case Tagging():
            found = tagged(trial, trial.judge)
            measure = Measure(name="tag accuracy", better="higher", unit="sentences")
            return Scores(judge=trial.judge, measure=measure, checkpoint=checkpoint.name, values=found.right,
                          weights=found.words)


def held_out_scores(trial: Trial, asked: Recipe, checkpoint: Path) -> Scores:
    """Score the held-out text block by block: bits over bytes for language models, nats over targets for others."""
    model, tokenizer = load(checkpoint, dtype="float32"), load_tokenizer(trial.folder)
    store = (PairStore if isinstance(asked.data, PairData) else TokenStore)(RunFolder(trial.folder).held_out_store)
    recipe = in_blocks(trial, asked, store)
    with torch.no_grad(), autocast(cast(Dtype, State.read(checkpoint).dtype), next(model.parameters()).device):
        found = list(block_losses(recipe, model, tokenizer, store, checkpoint))
    nats, targets = (tuple(one[side] for one in found) for side in range(2))
    unit = f"blocks of {trial.block:,} tokens" if isinstance(store, TokenStore) else "batches of pairs"
    if foretells_all(recipe.objective) and isinstance(store, TokenStore):
        each = store.bytes / sum(targets)
        return Scores(judge=trial.judge, measure=Measure(name="bits per byte", better="lower", unit=unit),
                      checkpoint=checkpoint.name, values=tuple(one / math.log(2) for one in nats),
                      weights=tuple(each * one for one in targets))
    return Scores(judge=trial.judge, measure=Measure(name="nats a target", better="lower", unit=unit),
                  checkpoint=checkpoint.name, values=nats, weights=targets)


def in_blocks(trial: Trial, asked: Recipe, store: Store) -> Recipe:
    """Return the recipe by which a batch is one block; what is hidden of it is the same for all seeds."""
    tokens = len(store.tokens) if isinstance(store, TokenStore) else 0
    blocks = max(1, min(LARGEST, tokens // (UNITS * trial.block)))
    rows = max(1, blocks * trial.block // asked.training.length)
    training = asked.training.model_copy(update={"seed": 0, "batch": min(rows, asked.training.batch)})
    evaluation = asked.evaluation.model_copy(update={"batch": rows, "stride": None})
    return asked.model_copy(update={"training": training, "evaluation": evaluation})


def block_losses(recipe: Recipe, model: Transformer, tokenizer: Tokenizer, store: Store,
                 checkpoint: Path) -> Iterator[tuple[float, float]]:
    """Yield (nats, targets) of each block; of the whole text where a mixture of objectives is scored."""
    lessons = make_lessons(recipe, tokenizer, stored(recipe, RunFolder(run_of(checkpoint))))
    _, objective = joint(lessons, recipe.training.seed)
    objective.bind(model)
    fill_modules(objective.modules, checkpoint)
    evaluate = make_evaluator(recipe, tokenizer, store, lessons, whole=True, processes=Processes())
    if not isinstance(evaluate, Evaluator):
        found = evaluate(model)
        yield found["loss"] * found["targets"], found["targets"]
        return
    for batch in evaluate.batches():
        sums = totals(model, evaluate.objective, [batch], evaluate.processes)
        if sums[NLL][1]:
            yield sums[NLL]
