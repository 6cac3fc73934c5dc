"""`comparison.json`: what came out, and what it allows to say about every pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from saucier.comparison.budget import step_cost
from saucier.comparison.config import Experiment
from saucier.comparison.preparation import same_yardstick
from saucier.comparison.rehearsal import performed
from saucier.comparison.scores import Measure, Scores, paired_values
from saucier.comparison.trials import Done
from saucier.config import parameters
from saucier.config.base import Config
from saucier.files import write_text
from saucier.inspection.results import read_results
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder
from saucier.tasks.metrics.statistics import FEWEST_SEEDS, Difference, holm, paired

FILE_NAME = "comparison.json"
LEVEL = 0.05
"""Probability of a wrong verdict over all pairs."""


Verdict = Literal["better", "worse", "not enough runs to tell"]
Agreement = Literal["agrees", "disagrees", "open"]


class ArmResult(Config):
    """One arm: what it spent and how it scored."""

    name: str
    """As the experiment calls it."""
    recipe: str
    """Its name."""
    objective: str
    """Its kind."""
    parameters: int
    """Tied ones counted once."""
    steps: int
    """Updates of the weights."""
    tokens: int
    """Tokens of text that were read, with repetitions."""
    flops: float
    """Of training, by our count; the mean over seeds."""
    six: float
    """6 · parameters · tokens, the rule of thumb. Source: Kaplan et al. 2020, §2.1, arXiv:2001.08361."""
    seconds: float
    """Of training, with evaluations; the mean over seeds."""
    scores: tuple[float, ...]
    """Of each seed."""
    measure: str
    """What the scores are, such as `bits per byte`."""
    mean: float
    """Over seeds."""
    spread: float | None
    """Standard deviation over seeds; None for one seed."""
    published: float | None = None
    """The figure of the paper."""


class PairResult(Config):
    """Two arms: how much the first scores above the second."""

    first: str
    """An arm."""
    second: str
    """Another one."""
    difference: float
    """The first one's mean score less the second one's."""
    low: float
    """Lower end of the 95 % interval over seeds and units."""
    high: float
    """Upper end."""
    p: float
    """Over seeds and units, corrected for the number of pairs (Holm)."""
    units_p: float
    """For these very models on other text, corrected likewise."""
    effect: float | None
    """Cohen's d_z over seeds."""
    verdict: Verdict
    """Of the first."""
    reason: str
    """Why."""
    published: Agreement | None = None
    """Whether the paper's figures say the same; open: we cannot tell."""


class Outcome(Config):
    """The whole of `comparison.json`."""

    experiment: Experiment
    """What was asked."""
    measure: Measure
    """What was scored."""
    arms: tuple[ArmResult, ...]
    """In the order of the experiment."""
    pairs: tuple[PairResult, ...]
    """Every pair of arms; none where their scores cannot be compared."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""


def outcome(wanted: Experiment, done: Sequence[Done]) -> Outcome:
    """Put the trials together. Raises `InputError` for a run whose files are damaged."""
    found = {arm.name: sorted((one for one in done if one.trial.arm == arm.name), key=lambda one: one.trial.seed)
             for arm in wanted.arms}
    recipes = [runs[0].trial.recipe for runs in found.values()]
    incomparable = same_yardstick(recipes, wanted.judge, wanted.own_tokenizers)
    pairs = () if incomparable else compared(wanted, {name: [one.scores for one in runs]
                                                      for name, runs in found.items()})
    published = {arm.name: arm.published for arm in wanted.arms}
    arms = tuple(arm_result(runs, published[name]) for name, runs in found.items())
    measure = common_measure([one.scores.measure for one in done])
    return Outcome(experiment=wanted, measure=measure, arms=arms, pairs=pairs,
                   notes=tuple(notes(wanted, recipes, incomparable)))


def common_measure(measures: Sequence[Measure]) -> Measure:
    """Return what all scores are; a name for several where they differ, as nothing is compared then."""
    first = measures[0]
    names = list(dict.fromkeys(one.name for one in measures))
    return first if len(names) == 1 else first.model_copy(update={"name": " or ".join(names)})


def arm_result(runs: Sequence[Done], published: float | None) -> ArmResult:
    """Sum one arm up."""
    trial, scores = runs[0].trial, tuple(one.scores.whole for one in runs)
    results = [read_results(one.trial.folder) for one in runs]
    vocab = results[0].vocab or trial.recipe.vocab
    count = parameters(trial.recipe.model_for(vocab))
    steps = round(float(np.mean([one.steps for one in results])))
    work = performed(RunFolder(trial.folder), trial.recipe, vocab)
    tokens = round(steps * step_cost(trial.recipe, work).tokens)
    return ArmResult(
        name=trial.arm, recipe=trial.recipe.name, objective=trial.recipe.objective.kind, parameters=count, steps=steps,
        tokens=tokens, flops=float(np.mean([one.cost.training_flops or 0.0 for one in results])),
        six=6.0 * count * tokens, seconds=float(np.mean([one.cost.training_seconds for one in results])), scores=scores,
        measure=runs[0].scores.measure.name, mean=float(np.mean(scores)),
        spread=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        published=published)


def compared(wanted: Experiment, scores: Mapping[str, list[Scores]]) -> tuple[PairResult, ...]:
    """Compare every pair of arms, and correct for their number."""
    couples = list(combinations(scores, 2))
    found = [paired(*paired_values(scores[first], scores[second])) for first, second in couples]
    corrected = holm([one.p for one in found])
    units = holm([one.units_p for one in found])
    higher = next(iter(scores.values()))[0].measure.better == "higher"
    return tuple(pair_result(couple, one, p=p, units_p=units_p, higher=higher, wanted=wanted)
                 for couple, one, p, units_p in zip(couples, found, corrected, units, strict=True))


def pair_result(couple: tuple[str, str], found: Difference, *, p: float, units_p: float, higher: bool,
                wanted: Experiment) -> PairResult:
    """Say what a difference allows to say."""
    verdict, reason = judgement(found, p, higher)
    return PairResult(first=couple[0], second=couple[1], difference=found.value, low=found.low, high=found.high, p=p,
                      units_p=units_p, effect=found.effect, verdict=verdict, reason=reason,
                      published=agreement(wanted, couple, verdict))


def judgement(found: Difference, p: float, higher: bool) -> tuple[Verdict, str]:
    """Return the verdict about the first arm, and why."""
    if found.seeds < FEWEST_SEEDS:
        more = f"; these very models differ (p = {found.units_p:.2g})" if found.units_p <= LEVEL else ""
        return "not enough runs to tell", f"fewer than {FEWEST_SEEDS} seeds{more}"
    if p <= LEVEL:
        return ("better" if (found.value > 0) == higher else "worse"), f"p = {p:.2g}"
    if found.low <= 0 <= found.high:
        needed = found.seeds_needed
        more = f"; about {needed} seeds would tell a difference of this size" if needed else ""
        return "not enough runs to tell", f"the interval holds 0{more}"
    return "not enough runs to tell", f"p = {p:.2g} with all pairs counted"


def agreement(wanted: Experiment, couple: tuple[str, str], verdict: Verdict) -> Agreement | None:
    """Hold a verdict against the paper's figures; None where it has none, or equal ones."""
    figures = {arm.name: arm.published for arm in wanted.arms}
    first, second = (figures[name] for name in couple)
    if wanted.published is None or first is None or second is None or first == second:
        return None
    said = "better" if (first > second) == (wanted.published.better == "higher") else "worse"
    return "open" if verdict not in ("better", "worse") else "agrees" if verdict == said else "disagrees"


def notes(wanted: Experiment, recipes: Sequence[Recipe], incomparable: str | None) -> list[str]:
    """Say what a reader must know."""
    found = [incomparable] if incomparable else []
    if len({one.training.length for one in recipes}) > 1:
        found.append("rows differ in length, so the runs of a seed read the text in different orders")
    if wanted.own_tokenizers:
        found.append("each arm has its own tokenizer: only seeds are paired, not blocks of text")
    return found


def write_outcome(found: Outcome, folder: Path) -> None:
    """Write `comparison.json`, atomically."""
    write_text(folder / FILE_NAME, found.model_dump_json(indent=2) + "\n")

