"""`comparison.json`: what came out, what it allows to say about every pair, and its tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.config import parameters
from saucier.config.base import Config
from saucier.jobs.comparison.budget import count_step_tokens, read_run_batches
from saucier.jobs.comparison.experiment import Experiment
from saucier.jobs.comparison.judging import FinishedTrial, Measure, TrialScores, paired_values
from saucier.jobs.comparison.preparation import why_incomparable
from saucier.opened import RunFolder
from saucier.plain import format_duration, format_quantity
from saucier.recipes import Recipe
from saucier.report.results import read_results
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.metrics.statistics import FEWEST_SEEDS, Difference, holm, paired_difference

OUTCOME_FILE = "comparison.json"
SIGNIFICANCE_LEVEL = 0.05
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


class Outcome(Config, Result):
    """The whole of `comparison.json`."""

    experiment: Experiment
    """What was compared, and how."""
    measure: Measure
    """What was scored."""
    arms: tuple[ArmResult, ...]
    """In the order of the experiment."""
    pairs: tuple[PairResult, ...]
    """Every pair of arms; none where their scores cannot be compared."""
    notes: tuple[str, ...] = ()
    """What a reader must know."""

    def view(self) -> RenderableType:
        """Return the tables that `saucier compare` ends with."""
        return render_outcome(self)


def summarize_trials(experiment: Experiment, done: Sequence[FinishedTrial]) -> Outcome:
    """Put the trials together. Raises `InputError` for a run whose files are damaged."""
    found = {arm.name: sorted((one for one in done if one.trial.arm == arm.name), key=lambda one: one.trial.seed)
             for arm in experiment.arms}
    recipes = [runs[0].trial.recipe for runs in found.values()]
    incomparable = why_incomparable(recipes, experiment.judge, experiment.own_tokenizers)
    pairs = () if incomparable else compare_arms(experiment, {name: [one.scores for one in runs]
                                                          for name, runs in found.items()})
    arms = tuple(arm_result(found[arm.name], arm.published) for arm in experiment.arms)
    names = " or ".join(dict.fromkeys(one.scores.measure.name for one in done))  # of several, nothing is compared
    measure = done[0].scores.measure.model_copy(update={"name": names})
    return Outcome(experiment=experiment, measure=measure, arms=arms, pairs=pairs,
                   notes=tuple(reader_notes(experiment, recipes, incomparable)))


def arm_result(runs: Sequence[FinishedTrial], published: float | None) -> ArmResult:
    """Sum one arm up."""
    trial, scores = runs[0].trial, tuple(one.scores.whole for one in runs)
    results = [read_results(one.trial.folder) for one in runs]
    vocab = results[0].vocab or trial.recipe.vocab
    count = parameters(trial.recipe.model_for(vocab))
    steps = round(float(np.mean([one.steps for one in results])))
    work = read_run_batches(RunFolder(trial.folder), trial.recipe, vocab)
    tokens = round(steps * count_step_tokens(trial.recipe, work))
    return ArmResult(
        name=trial.arm, recipe=trial.recipe.name, objective=trial.recipe.objective.kind, parameters=count, steps=steps,
        tokens=tokens, flops=float(np.mean([one.cost.training_flops or 0.0 for one in results])),
        six=6.0 * count * tokens, seconds=float(np.mean([one.cost.training_seconds for one in results])), scores=scores,
        measure=runs[0].scores.measure.name, mean=float(np.mean(scores)),
        spread=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        published=published)


def compare_arms(experiment: Experiment, scores: Mapping[str, list[TrialScores]]) -> tuple[PairResult, ...]:
    """Compare every pair of arms, and correct for their number."""
    couples = list(combinations(scores, 2))
    found = [paired_difference(*paired_values(scores[first], scores[second])) for first, second in couples]
    corrected = holm([one.p for one in found])
    units = holm([one.units_p for one in found])
    higher = next(iter(scores.values()))[0].measure.better == "higher"
    pairs = []
    for couple, one, p, units_p in zip(couples, found, corrected, units, strict=True):
        verdict, reason = judge_pair(one, p, higher)
        pairs.append(PairResult(first=couple[0], second=couple[1], difference=one.value, low=one.low, high=one.high,
                                p=p, units_p=units_p, effect=one.effect, verdict=verdict, reason=reason,
                                published=agree_with_paper(experiment, couple, verdict)))
    return tuple(pairs)


def judge_pair(found: Difference, p: float, higher: bool) -> tuple[Verdict, str]:
    """Return the verdict about the first arm, and why."""
    if found.seeds < FEWEST_SEEDS:
        more = f"; these very models differ (p = {found.units_p:.2g})" if found.units_p <= SIGNIFICANCE_LEVEL else ""
        return "not enough runs to tell", f"fewer than {FEWEST_SEEDS} seeds{more}"
    if p <= SIGNIFICANCE_LEVEL:
        return ("better" if (found.value > 0) == higher else "worse"), f"p = {p:.2g}"
    if found.low <= 0 <= found.high:
        needed = found.seeds_needed
        more = f"; about {needed} seeds would tell a difference of this size" if needed else ""
        return "not enough runs to tell", f"the interval holds 0{more}"
    return "not enough runs to tell", f"p = {p:.2g} with all pairs counted"


def agree_with_paper(experiment: Experiment, couple: tuple[str, str], verdict: Verdict) -> Agreement | None:
    """Hold a verdict against the paper's figures; None where it has none, or equal ones."""
    first, second = (arm.published for name in couple for arm in experiment.arms if arm.name == name)
    if experiment.published is None or first is None or second is None or first == second:
        return None
    claimed = "better" if (first > second) == (experiment.published.better == "higher") else "worse"
    return "open" if verdict not in ("better", "worse") else "agrees" if verdict == claimed else "disagrees"


def reader_notes(experiment: Experiment, recipes: Sequence[Recipe], incomparable: str | None) -> list[str]:
    """Say what a reader must know."""
    found = [incomparable] if incomparable else []
    if len({one.training.length for one in recipes}) > 1:
        found.append("rows differ in length, so the runs of a seed read the text in different orders")
    if experiment.own_tokenizers:
        found.append("each arm has its own tokenizer: only seeds are paired, not blocks of text")
    return found


ARMS = ("parameters", "steps", "tokens", "FLOPs", "6·N·D", "time")
PAIRS = ("", "difference", "95 % interval", "p", "d_z", "verdict", "why")
COLOURS = {"better": "green", "worse": "red"}


def render_outcome(found: Outcome) -> RenderableType:
    """Lay a comparison out for a person."""
    parts: list[RenderableType] = [arms_table(found)]
    if found.pairs:
        parts += [Text(), pairs_table(found)]
    parts += [Text(note, style="yellow") for note in found.notes]
    return Group(*parts, Text(measure_footnote(found), style="dim"))


def measure_footnote(found: Outcome) -> str:
    """Say what was measured, and how."""
    units = f"{found.measure.name}, {found.measure.better} is better; {found.experiment.seeds} seeds"
    tests = "; p over seeds and units, corrected for all pairs (Holm)" if found.pairs else ""
    return f"{units}, scored on {found.measure.unit}{tests}"


def rank_arms(found: Outcome) -> list[ArmResult]:
    """Return the arms, the best first; in their own order where they cannot be compared."""
    if not found.pairs:
        return list(found.arms)
    return sorted(found.arms, key=lambda arm: arm.mean, reverse=found.measure.better == "higher")


def arms_table(found: Outcome) -> Table:
    """Show what each arm spent and how it scored."""
    published = [found.experiment.published.measure] if found.experiment.published else []
    headings = ["", found.measure.name, "± seeds", *published, *ARMS]
    return Table(headings, [arm_row(found, arm) for arm in rank_arms(found)], numbers=range(1, len(headings)),
                 colours={0: "cyan"})


def arm_row(found: Outcome, arm: ArmResult) -> list[str]:
    """Return the cells of one arm."""
    unit = "" if arm.measure == found.measure.name else f" {arm.measure}"
    own = [f"{format_score(found, arm.mean)}{unit}", "" if arm.spread is None else format_score(found, arm.spread)]
    published = ["" if arm.published is None else f"{arm.published:g}"] if found.experiment.published else []
    return [arm.name, *own, *published, f"{arm.parameters:,}", f"{arm.steps:,}", format_quantity(arm.tokens),
            format_quantity(arm.flops), format_quantity(arm.six), format_duration(arm.seconds)]


def format_score(found: Outcome, value: float, *, signed: bool = False) -> str:
    """Write a score: a share as a percentage, all else with four digits."""
    sign = "+" if signed else ""
    text = f"{100 * value:{sign}.1f} %" if found.measure.name == "accuracy" else f"{value:{sign}.4f}"
    return text.replace("-", "−")


def pairs_table(found: Outcome) -> Table:
    """Show what may be said about each pair."""
    headings = (*PAIRS, "published") if found.experiment.published else PAIRS
    return Table(headings, [pair_row(found, pair) for pair in found.pairs], numbers=range(1, 5), folded=(6, 7),
                 cut_words=True)


def pair_row(found: Outcome, pair: PairResult) -> list[Text | str]:
    """Return the cells of one pair."""
    low, high = (format_score(found, end, signed=True) for end in (pair.low, pair.high))
    published = [pair.published or ""] if found.experiment.published else []
    effect = "" if pair.effect is None else f"{pair.effect:.1f}".replace("-", "−")
    # two seeds say nothing of a spread, however small p is
    told = (f"{pair.p:.2g}", effect) if found.experiment.seeds >= FEWEST_SEEDS else ("", "")
    return [Text(f"{pair.first} – {pair.second}", style="cyan"), format_score(found, pair.difference, signed=True),
            f"{low} … {high}", *told,
            Text(pair.verdict, style=COLOURS.get(pair.verdict, "yellow")), pair.reason, *published]
