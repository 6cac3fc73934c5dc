"""Scoring a trained run by a judge: held-out loss, a few more updates, or fine-tuning; and `scores.json` of the run."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from pydantic import ValidationError

from saucier.checkpoints.steps import TrainingState, latest_checkpoint
from saucier.config.base import Config
from saucier.devices import AutocastDtype, autocast
from saucier.errors import InputError, WorkError
from saucier.files import read_object, remove_path, write_text
from saucier.folders.load import load
from saucier.jobs.comparison.experiment import Adaptation, Classification, HeldOutLoss, Judge, Tagging
from saucier.jobs.comparison.preparation import Trial
from saucier.jobs.comparison.transfer import score_classification
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.labelled_files import LabelledFiles
from saucier.jobs.finetuning.settings import make_finetuning
from saucier.jobs.pretraining.batching import make_evaluator
from saucier.jobs.pretraining.cook import JobOptions, cook
from saucier.jobs.pretraining.data import Store
from saucier.jobs.pretraining.held_out import load_objectives, scores_whole_texts
from saucier.jobs.run.folder import open_run
from saucier.opened import OpenModel, RunFolder
from saucier.recipes import Recipe
from saucier.tasks.metrics.statistics import Floats
from saucier.text.config import PairData
from saucier.text.rows.store import PairStore, TokenStore
from saucier.text.tokenizer.tokenizer import load_tokenizer
from saucier.training.evaluation import NLL, Evaluator, sum_scores
from saucier.training.processes import Processes

SCORES_FILE = "scores.json"


class Measure(Config):
    """What a score is."""

    name: str
    """Such as `bits per byte`."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    unit: str
    """What was scored one by one, such as `blocks of 256 tokens`."""


class TrialScores(Config):
    """A run's scores: the whole is the sum of the values over the sum of the weights."""

    judge: Judge
    """Who gave them."""
    measure: Measure
    """What they are."""
    checkpoint: str
    """Whose weights were scored: the last ones."""
    values: tuple[float, ...]
    """Of each unit."""
    weights: tuple[float, ...]
    """Of each unit."""

    @property
    def whole(self) -> float:
        """The run's score."""
        return sum(self.values) / sum(self.weights)

    def write(self, folder: Path) -> None:
        """Write `scores.json` into a run folder, atomically."""
        write_text(folder / SCORES_FILE, self.model_dump_json() + "\n")


def read_scores(folder: Path, judge: Judge) -> TrialScores | None:
    """Read what a judge gave a run; None where this one has not seen it."""
    values = read_object(folder / SCORES_FILE)
    if not values:
        return None
    try:
        found = TrialScores.model_validate(values)
    except ValidationError as error:
        raise InputError(f"not the scores of a run: {error.errors()[0]['msg']}", where=str(folder / SCORES_FILE),
                         remedy="remove the file; it is made again") from error
    return found if found.judge == judge else None


def paired_values(first: list[TrialScores], second: list[TrialScores]) -> tuple[Floats, Floats, Floats]:
    """Return two arms' values and the weights of their units; as one unit each where the units are not the same.

    Shapes: S runs of each arm -> [S, N], [S, N], [N].
    """
    weights = [np.array(one.weights) for one in (*first, *second)]
    if all(len(one) == len(weights[0]) and np.allclose(one, weights[0]) for one in weights):
        return np.array([one.values for one in first]), np.array([one.values for one in second]), weights[0]
    return np.array([[one.whole] for one in first]), np.array([[one.whole] for one in second]), np.ones(1)


ADAPTATION_FOLDER = "adapted"
"""Inside the folder of the run that is judged."""


def continue_training(run: Path, recipe: Recipe) -> Path:
    """Let a run's model go on by another recipe on the same text, and return the checkpoint; it is always done again.

    Raises as `cook`.
    """
    remove_path(run / ADAPTATION_FOLDER)
    first, (own, _) = RunFolder(run), open_run(run / ADAPTATION_FOLDER, recipe)
    shutil.copytree(first.data_file.parent, own.data_file.parent)
    cook(recipe, own.path, JobOptions(calibrate=False, evaluate=False, quiet=True, start=run))
    checkpoint = latest_checkpoint(own.path)
    if checkpoint is None:
        raise WorkError("has no whole checkpoint left to score", where=str(own.path), remedy="compare again")
    return checkpoint


TAGGING_FOLDER = "tag"
"""Inside the folder of the run that is judged."""


def judge_files(judge: Tagging) -> LabelledFiles:
    """Return the files of a judge."""
    return LabelledFiles(train=(judge.train,), held_out=(judge.dev,), limit=judge.limit)


def score_tagging(trial: Trial, judge: Tagging) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Fine-tune a trial's model, and tag the sentences of `dev`; it is always done again. Raises as `finetune`.

    Returns for each sentence the words that were tagged rightly, and all words.
    """
    place = trial.folder / TAGGING_FOLDER
    remove_path(place)
    settings = make_finetuning(
        {"name": TAGGING_FOLDER, "model": str(trial.folder), "task": {"kind": "tagging"},
         "data": judge_files(judge).model_dump(mode="json")},
        [f"training.epochs={judge.epochs}", f"training.batch={judge.batch}", f"training.seed={trial.seed}",
         f"training.optimizer.learning_rate={judge.learning_rate}"])
    done = finetune(settings, place, quiet=True)
    rows = [json.loads(line) for line in done.predictions("held-out").read_text(encoding="utf-8").splitlines()]
    right = (sum(tag == gold for tag, gold in zip(row["prediction"], row["gold"], strict=True)) for row in rows)
    return tuple(map(float, right)), tuple(float(len(row["gold"])) for row in rows)


UNITS, LARGEST = 200, 16
"""The target number of blocks, and the most rows' worth of tokens in one."""


def score_trial(trial: Trial) -> TrialScores:
    """Score the last weights of a trial's run. Raises `WorkError` where they are gone."""
    checkpoint = latest_checkpoint(trial.folder)
    if checkpoint is None:
        raise WorkError("has no whole checkpoint left to score", where=str(trial.folder),
                        remedy="remove the folder, and compare again")
    match trial.judge:
        case HeldOutLoss():
            measure, values, weights = held_out_scores(trial, trial.recipe, checkpoint)
        case Adaptation():
            assert trial.adapted is not None, "prepared with the judge"
            checkpoint = continue_training(trial.folder, trial.adapted)
            measure, values, weights = held_out_scores(trial, trial.adapted, checkpoint)
        case Classification():
            measure = Measure(name="accuracy", better="higher", unit="texts")
            values = score_classification(trial, trial.judge, load(checkpoint, dtype="float32"),
                                          load_tokenizer(trial.folder))
            weights = (1.0,) * len(values)
        case Tagging():
            measure = Measure(name="tag accuracy", better="higher", unit="sentences")
            values, weights = score_tagging(trial, trial.judge)
    return TrialScores(judge=trial.judge, measure=measure, checkpoint=checkpoint.name, values=values, weights=weights)


def held_out_scores(trial: Trial, recipe: Recipe, checkpoint: Path) -> tuple[Measure, tuple[float, ...],
                                                                            tuple[float, ...]]:
    """Score the held-out text block by block, and return the values and their weights.

    That is bits over bytes for language models, nats over targets for others.
    """
    store = (PairStore if isinstance(recipe.data, PairData) else TokenStore)(RunFolder(trial.folder).held_out_store)
    block_wise = block_recipe(trial, recipe, store)
    opened = load_objectives(OpenModel(checkpoint, load(checkpoint, dtype="float32"), load_tokenizer(trial.folder),
                                       block_wise))
    with torch.no_grad(), autocast(cast(AutocastDtype, TrainingState.read(checkpoint).dtype), opened.device):
        nats, targets = zip(*block_losses(opened, store), strict=True)
    unit = f"blocks of {trial.block:,} tokens" if isinstance(store, TokenStore) else "batches of pairs"
    if scores_whole_texts(block_wise.objective) and isinstance(store, TokenStore):
        each = store.bytes / sum(targets)
        return (Measure(name="bits per byte", better="lower", unit=unit), tuple(one / math.log(2) for one in nats),
                tuple(each * one for one in targets))
    return Measure(name="nats a target", better="lower", unit=unit), nats, targets


def block_recipe(trial: Trial, recipe: Recipe, store: Store) -> Recipe:
    """Return the recipe by which a batch is one block; what is hidden of it is the same for all seeds."""
    tokens = len(store.tokens) if isinstance(store, TokenStore) else 0
    blocks = max(1, min(LARGEST, tokens // (UNITS * trial.block)))
    rows = max(1, blocks * trial.block // recipe.training.length)
    training = recipe.training.model_copy(update={"seed": 0, "batch": min(rows, recipe.training.batch)})
    evaluation = recipe.evaluation.model_copy(update={"batch": rows, "stride": None})
    return recipe.model_copy(update={"training": training, "evaluation": evaluation})


def block_losses(opened: OpenModel, store: Store) -> Iterator[tuple[float, float]]:
    """Yield (nats, targets) of each block; of the whole text where a mixture of objectives is scored."""
    evaluate = make_evaluator(opened.own_recipe, opened.tokenizer, store, opened.objectives, whole=True,
                              processes=Processes())
    if not isinstance(evaluate, Evaluator):
        found = evaluate(opened.model)
        yield found["loss"] * found["targets"], found["targets"]
        return
    for batch in evaluate.batches():
        sums = sum_scores(opened.model, evaluate.objective, [batch], evaluate.processes)
        if sums[NLL][1]:
            yield sums[NLL]


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A finished trial."""

    trial: Trial
    scores: TrialScores
    seconds: float
    """Time that it took now; 0 where it was finished before."""
