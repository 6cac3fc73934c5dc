"""From an experiment to its trials: one recipe for each arm and seed, checked before anything is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.cost.workload import Workload
from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.jobs.comparison.budget import Pace, rehearse_batches, scale_schedule, spend_budget
from saucier.jobs.comparison.experiment import Adaptation, Arm, Changes, Experiment, FineTuned, Judge
from saucier.jobs.pretraining.data import open_corpus
from saucier.jobs.run.language_pairs import with_language_tokens
from saucier.objectives.config import Causal
from saucier.recipes import Recipe, recipe
from saucier.text.config import Fraction, SpecialTokens
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer.training import train_tokenizer

QUIET: Changes = {
    "training.events": "off", "training.keep": 1, "training.patience": None, "evaluation.baselines": [],
    "evaluation.tokens_while_training": 20_000, "sampling.samples": 0, "sampling.prompts": []}
"""What a recipe does without when it is compared; the command line may turn it on again."""
LOOKS = 10
"""Evaluations of a run, for its curve."""
LINES = 100
"""Lines of a run's metrics."""
SHARED = "one for all: the first recipe's, with the special tokens of the others"
PACES, TOKENIZER = "paces.json", "tokenizer"
ROLES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: an arm with a seed."""

    arm: str
    seed: int
    recipe: Recipe
    folder: Path
    judge: Judge
    tokenizer: Path | None
    """The folder of the tokenizer that all share."""
    block: int
    """Tokens of held-out text that are scored as one unit: a multiple of every arm's row."""
    adapted: Recipe | None = None
    """By which the model goes on before it is judged, where the judge wants that."""


def prepare_trials(experiment: Experiment, out: Path, pace: Pace,
                   say: Callable[[str], None] = lambda text: None) -> list[Trial]:
    """Return the trials of an experiment, seed by seed; train the tokenizer that they share. `say` hears what is done.

    Raises `InputError` for recipes that cannot be compared, for text that cannot be read, for a budget below one step.
    """
    first = {arm.name: recipe(arm.recipe, overrides(QUIET | experiment.changes | arm.changes))
             for arm in experiment.arms}
    refuse_mixed_data(first)
    if not experiment.own_tokenizers:
        refuse_two_tokenizers(first)
    shared = {} if experiment.own_tokenizers else {"tokenizer": shared_tokenizer(list(first.values()))}
    resolved = {arm.name: resolve_arm_recipe(arm, experiment, shared) for arm in experiment.arms}
    adapted = {arm.name: adaptation_recipe(arm, experiment, shared, resolved[arm.name]) for arm in experiment.arms}
    for one in {found.data: found for found in resolved.values()}.values():
        open_corpus(one)
    say("each recipe has its own tokenizer" if experiment.own_tokenizers else SHARED)
    place = tokenizer = None
    if not experiment.own_tokenizers:
        place = train_shared_tokenizer(next(iter(resolved.values())), out / TOKENIZER)
        tokenizer = load_tokenizer(place)
    plans = {arm.name: plan_arm_recipe(arm, experiment, shared, resolved[arm.name], tokenizer=tokenizer,
                                       pace=remember_pace(out / PACES, arm.name, pace)) for arm in experiment.arms}
    block = math.lcm(*(one.training.length for one in plans.values()))
    return [Trial(name, seed, with_seed(one, seed), out / name / f"seed-{seed}", experiment.judge, place, block,
                  adapted=None if (also := adapted[name]) is None else with_seed(also, seed))
            for seed in range(experiment.seeds) for name, one in plans.items()]


def overrides(changes: Mapping[str, Any]) -> list[str]:
    """Write changes as words of a command line."""
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def refuse_mixed_data(recipes: Mapping[str, Recipe]) -> None:
    """Raise `InputError` where one recipe learns from pairs and another from running text."""
    kinds = {name: one.data.kind for name, one in recipes.items()}
    first, *others = kinds
    for other in others:
        if kinds[other] != kinds[first]:
            raise InputError(f"{first} learns from {kinds[first]}, and {other} from {kinds[other]}", where="data.kind",
                             remedy="compare recipes that read the same data")


def refuse_two_tokenizers(recipes: Mapping[str, Recipe]) -> None:
    """Raise `InputError` for a recipe with a tokenizer for targets, where one is to serve all recipes."""
    for name, one in recipes.items():
        if one.target_tokenizer is not None:
            raise InputError(f"{name} has two tokenizers, and one is to serve all recipes", where="target_tokenizer",
                             remedy="give own_tokenizers: true, or leave it out")


def shared_tokenizer(recipes: list[Recipe]) -> dict[str, Any]:
    """Return the first recipe's tokenizer, with the special tokens that the others need."""
    config = recipes[0].tokenizer
    all_special = [one.tokenizer.special for one in recipes]
    special = SpecialTokens.model_validate({
        **config.special.model_dump(),
        **{role: next((name for special in all_special if (name := getattr(special, role))), None) for role in ROLES},
        "extra": tuple(dict.fromkeys(name for special in all_special for name in special.extra)),
        "sentinels": max(special.sentinels for special in all_special)})
    return config.model_copy(update={"special": special}).model_dump(mode="json")


def resolve_arm_recipe(arm: Arm, experiment: Experiment, further: Changes) -> Recipe:
    """Return an arm's recipe with all changes but those of the budget; what is held out is the same for all seeds."""
    changed = QUIET | experiment.changes | arm.changes | further
    found = recipe(arm.recipe, overrides(changed))
    held_out = found.data.held_out
    if isinstance(held_out, Fraction) and held_out.seed is None:
        found = recipe(arm.recipe, overrides(changed | {"data.held_out": held_out.model_dump() | {"seed": 0}}))
    return found


def plan_arm_recipe(arm: Arm, experiment: Experiment, shared: Changes, resolved: Recipe, *, tokenizer: Tokenizer | None,
                    pace: Pace) -> Recipe:
    """Return an arm's recipe as it spends the budget."""
    work = rehearse_batches(resolved, tokenizer)
    spent = spend_budget(resolved, arm.budget or experiment.budget, work=work, pace=pace)
    steps = spent.get("training.steps", resolved.training.steps)
    looks = {"training.evaluate_every": -(-steps // LOOKS), "training.log_every": max(1, steps // LINES)}
    return resolve_arm_recipe(arm, experiment, shared | looks | spent)


def adaptation_recipe(arm: Arm, experiment: Experiment, shared: Changes, resolved: Recipe) -> Recipe | None:
    """Return the recipe by which an arm's model goes on to learn what the judge requires; None where that is nothing.

    Raises `InputError` for a body that cannot take it.
    """
    if not isinstance(experiment.judge, Adaptation):
        return None
    steps = experiment.judge.steps
    changes = {"objective": experiment.judge.objective.model_dump(mode="json"), "training.evaluate_every": steps,
               "training.log_every": max(1, steps // LOOKS), **scale_schedule(resolved, steps)}
    try:
        return resolve_arm_recipe(arm, experiment, shared | changes)
    except InputError as error:
        raise InputError(f"{arm.name} cannot be asked for it: {error}", where="judge.objective",
                         remedy="ask for what every body takes") from error


def with_seed(one: Recipe, seed: int) -> Recipe:
    """Return a recipe with a seed for the weights, the order of the data, what is hidden of it, and dropout."""
    return one.model_copy(update={"training": one.training.model_copy(update={"seed": seed})})


def train_shared_tokenizer(one: Recipe, folder: Path) -> Path:
    """Train the tokenizer that all share, unless it is there."""
    if not (folder / "tokenizer_config.json").is_file():
        corpus = open_corpus(one)
        train_tokenizer(with_language_tokens(one.tokenizer, corpus), corpus.texts).save(folder)
    return folder


def remember_pace(path: Path, arm: str, measure: Pace) -> Pace:
    """Return what measures the seconds of an arm's update once, and keeps them in a file.

    A comparison that goes on must make the same runs.
    """
    def pace(one: Recipe, work: Workload) -> float:
        known = read_object(path)
        if arm not in known:
            known[arm] = measure(one, work)
            write_json(path, known)
        return float(known[arm])

    return pace


def why_incomparable(recipes: list[Recipe], judge: Judge, own_tokenizers: bool) -> str | None:
    """Say why the scores of recipes cannot be compared; None where they can."""
    if isinstance(judge, FineTuned):
        return None
    learned = [judge.objective if isinstance(judge, Adaptation) else one.objective for one in recipes]
    if all(isinstance(one, Causal) for one in learned):
        return None
    if any(one != learned[0] for one in learned):
        return "losses of different objectives cannot be compared; --judge classify:TRAIN.tsv,DEV.tsv can"
    if own_tokenizers:
        return "losses a token of different tokenizers cannot be compared; leave --own-tokenizers out"
    return None
