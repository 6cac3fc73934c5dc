"""Reports of a comparison or a scaling law: `report.html` with its curves, and a page of Markdown with a picture.

What people wrote on a Markdown page stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier.files import write_text
from saucier.jobs.comparison.experiment import (
    Adaptation,
    Budget,
    Classification,
    Experiment,
    FineTuned,
    HeldOutLoss,
    Judge,
    Parameters,
    Seconds,
    Tagging,
)
from saucier.jobs.comparison.judging import FinishedTrial
from saucier.jobs.comparison.outcome import (
    ArmResult,
    Outcome,
    arms_table,
    format_score,
    measure_footnote,
    pairs_table,
    rank_arms,
)
from saucier.jobs.comparison.scaling import (
    SYMBOLS,
    Fit,
    format_exponents,
    format_law,
    scaling_table,
)
from saucier.plain import format_duration, format_quantity
from saucier.report.page import (
    INK,
    REPORT_FILE,
    SOFT,
    Bar,
    Picture,
    draw_inline,
    draw_or_explain,
    draw_svg,
    write_page,
)
from saucier.report.results import METRICS, read_metrics
from saucier.table import Table
from saucier.tasks.metrics.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#c0503a", "#2f7f7b", "#7d6bb3", "#a8832a", "#5b8c3e", "#b2568a", "#4a7fb5", "#8a6f5c")
"""Colours that differ visibly on light and on dark paper; with more arms they are used again."""
PANELS = ("tokens", "FLOPs", "seconds")
PICTURE_HEIGHT = 3.4
CURVES_CAPTION = ("Loss on part of the held-out text, nats a target. Lines are means over seeds, bands reach from the "
                  "lowest to the highest.")


@dataclass(frozen=True, slots=True)
class Curve:
    """One arm's held-out loss. Shapes: P points, S seeds; panels [P] each; losses [S, P]."""

    name: str
    panels: dict[str, Floats]
    """The horizontal places of the points in each panel."""
    losses: Floats


def read_curve(arm: ArmResult, folders: Sequence[Path]) -> Curve:
    """Read an arm's curve from its runs: the steps at which all of them were evaluated."""
    runs = [read_metrics(folder / METRICS) for folder in folders]
    looks = [{line["step"]: line["evaluation"]["loss"] for line in run if "evaluation" in line} for run in runs]
    common = sorted(set.intersection(*(set(look) for look in looks)))
    timed = [[(line["step"], line["seconds"]) for line in run if "seconds" in line] for run in runs]
    seconds = [np.interp(common, *np.array(pairs).T) for pairs in timed if pairs]
    steps = np.array(common, dtype=float)
    return Curve(arm.name, {"tokens": steps * (arm.tokens / arm.steps), "FLOPs": steps * (arm.flops / arm.steps),
                            "seconds": np.mean(seconds, axis=0) if seconds else np.zeros(len(common))},
                 np.array([[look[step] for step in common] for look in looks]))


def draw_curves(figure: Figure, curves: Sequence[Curve]) -> None:
    """Draw the three panels."""
    for axes, panel in zip(figure.subplots(1, 3, sharey=True, gridspec_kw={"wspace": 0.08}), PANELS, strict=True):
        _draw_panel(axes, curves, panel)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.1, -0.06 - 0.05 * (len(labels) // 4)),
                  ncols=4, frameon=False)


def _draw_panel(axes: Axes, curves: Sequence[Curve], panel: str) -> None:
    from matplotlib.ticker import EngFormatter

    for number, one in enumerate(curves):
        colour, places, mean = PALETTE[number % len(PALETTE)], one.panels[panel], one.losses.mean(axis=0)
        axes.plot(places, mean, color=colour, linewidth=1.5, label=one.name)
        if len(one.losses) > 1:
            axes.fill_between(places, one.losses.min(axis=0), one.losses.max(axis=0), color=colour, alpha=0.18,
                              linewidth=0)
    axes.set_title(f"against {panel}", loc="left", fontsize=9.5, color=INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep="\N{THIN SPACE}"))
    axes.grid(axis="y")


SCALING_PAGE = "scaling.html"


def write_scaling_page(found: Fit, folder: Path) -> Path:
    """Write `scaling.html`, and return its path. Raises `InputError` where matplotlib is missing."""
    caption = "Dots were fitted, crosses were left out; lines are the law, at the tokens (parameters) of each series."
    picture = Picture(draw_inline(lambda figure: draw_law(figure, found)), caption)
    return write_page(folder / SCALING_PAGE, "scaling.html", title="scaling", law=format_law(found),
                      exponents=format_exponents(found), picture=picture, runs=scaling_table(found))


def draw_law(figure: Figure, found: Fit) -> None:
    """Draw runs and law against the first quantity, a line for each value of the others."""
    axes = figure.subplots()
    runs = [*found.runs, *(one.run for one in found.predictions)]
    first, others = found.law.quantities[0], found.law.quantities[1:]
    series = sorted({tuple(getattr(run, name) for name in others) for run in runs})
    for number, values in enumerate(series):
        colour = PALETTE[number % len(PALETTE)]
        label = ", ".join(f"{SYMBOLS[name]} = {format_quantity(value)}"
                          for name, value in zip(others, values, strict=True))
        for marker, group in (("o", found.runs), ("x", [one.run for one in found.predictions])):
            points = [(getattr(run, first), run.loss) for run in group
                      if tuple(getattr(run, name) for name in others) == values]
            axes.plot([place for place, _ in points], [loss for _, loss in points], marker, color=colour)
        places = np.geomspace(min(getattr(run, first) for run in runs), max(getattr(run, first) for run in runs), 60)
        losses = [found.irreducible + sum(term.factor / math.pow(value, term.exponent)
                                          for term, value in zip(found.terms, (place, *values), strict=True))
                  for place in places]
        axes.plot(places, losses, color=colour, linewidth=1.3, label=label or None)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"held-out loss, nats a token, against {first}", loc="left", fontsize=10, color=INK)
    axes.grid(color=SOFT, alpha=0.25)
    if others:
        axes.legend(frameon=False)


CLOSING_HEADING = "## What it says"
"""The heading of the part that people write."""
UNWRITTEN_CLOSING = "Nobody has yet written what these figures say."
DOTS, LINE = 0.32, 0.8
"""Inches of the picture for an arm, and for all that is around the arms."""


def write_comparison_page(found: Outcome, page: Path) -> None:
    """Write a comparison's page and picture. Raises `InputError` where matplotlib is missing."""
    drawn = draw_svg(lambda figure: _draw_scores(figure, found), LINE + DOTS * len(found.arms))
    experiment, published = found.experiment, found.experiment.published
    paper = [f"After {published.paper}; its measure is {published.measure}."] if published else []
    _write_markdown_page(page, drawn, experiment.name, [experiment.about] * bool(experiment.about) + paper, [
        f"```\n{repeat_command(experiment)}\n```", Table(("", ""), describe_settings(experiment)).to_markdown(),
        "## Scores", f"![{found.measure.name} of each arm]({page.stem}.svg)",
        "Each dot is a seed, each line a mean." if experiment.seeds > 1 else "Each dot is a run.",
        arms_table(found).to_markdown(), *found.notes,
        *pairs_section(found)])


def write_law_page(found: Fit, page: Path) -> None:
    """Write a scaling law's page and picture. Raises `InputError` where matplotlib is missing."""
    drawn = draw_svg(lambda figure: draw_law(figure, found))
    _write_markdown_page(page, drawn, "scaling", [f"**{format_law(found)}**", *format_exponents(found)],
                         [f"![held-out loss against {found.law.quantities[0]}]({page.stem}.svg)",
                          "Dots were fitted, crosses were left out; lines are the law.",
                          scaling_table(found).to_markdown(),
                          f"The fitted runs are off by {100 * found.error:.1f} % (root mean square)."])


def _write_markdown_page(page: Path, drawn: str, name: str, lead: Sequence[str], content: Sequence[str]) -> None:
    title = "# " + name.replace("-", " ").capitalize()
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page.with_suffix(".svg"), "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")
    old = page.read_text(encoding="utf-8") if page.is_file() else ""
    closing = old[old.index(CLOSING_HEADING):] if CLOSING_HEADING in old else \
        f"{CLOSING_HEADING}\n\n{UNWRITTEN_CLOSING}"
    write_text(page, "\n\n".join([title, *lead, *content, closing]).rstrip() + "\n")


def repeat_command(experiment: Experiment) -> str:
    """Return the command that does it again, files by their names alone: a page says nothing of the machine."""
    words = ["saucier compare", f"{experiment.name}.yaml"]
    files, held_out = experiment.changes.get("data.files"), experiment.changes.get("data.held_out")
    words += ["--data", *(Path(name).name for name in files)] if files else []
    words += ["--held-out", *(Path(name).name for name in held_out["files"])] if isinstance(held_out, dict) else []
    judge = experiment.judge
    if isinstance(judge, FineTuned):
        words += ["--judge",
                  f"{judge.kind}:{Path(judge.train).name},{Path(judge.dev).name}"]
    return " ".join(words)


def describe_settings(experiment: Experiment) -> list[list[str]]:
    """Say what was the same for all arms, and what each changed."""
    shared = {key: value for key, value in experiment.changes.items() if key not in ("data.files", "data.held_out")}
    own = [[f"`{arm.name}`", changes_text(arm.recipe, arm.changes, arm.budget)] for arm in experiment.arms]
    return [["budget of a run", budget_text(experiment.budget)], ["seeds", str(experiment.seeds)],
            ["judge", judge_text(experiment.judge)],
            ["all arms", changes_text("", shared, None) or "as their recipes say"], *own]


def changes_text(recipe: str, changes: dict[str, Any], budget: Budget | None) -> str:
    """Write a recipe with its changes."""
    words = [f"`{recipe}`"] if recipe else []
    words += [f"`{key}: {value}`".replace("'", "") for key, value in changes.items()]
    return ", ".join(words + ([budget_text(budget)] if budget else []))


def budget_text(budget: Budget) -> str:
    """Write a budget."""
    match budget:
        case Seconds(amount=amount):
            return format_duration(amount)
        case Parameters(amount=amount):
            return f"{format_quantity(amount)} parameters, steps as the recipes say"
        case _:
            return f"{format_quantity(budget.amount)} {budget.kind.replace('flops', 'FLOPs')}"


def judge_text(judge: Judge) -> str:
    """Say by what the runs were judged."""
    match judge:
        case HeldOutLoss():
            return "loss on the held-out text"
        case Adaptation():
            objective = str(judge.objective.model_dump(exclude_unset=True)).replace("'", "")
            return f"loss on the held-out text, after all have gone on for {judge.steps:,} updates with `{objective}`"
        case Classification() | Tagging():
            rows, measure = ("texts", "") if isinstance(judge, Classification) else ("sentences", "tag ")
            texts = f"the {rows}" if judge.limit is None else f"the first {judge.limit:,} {rows}"
            return (f"{measure}accuracy on all of {Path(judge.dev).name} after {judge.epochs} epochs on {texts} "
                    f"of {Path(judge.train).name}, {judge.batch} in a batch, at a rate of {judge.learning_rate:g}")


def pairs_section(found: Outcome) -> list[str]:
    """Return the table of pairs; nothing where the scores cannot be compared."""
    if not found.pairs:
        return []
    note = measure_footnote(found)
    return ["## Differences", pairs_table(found).to_markdown(), f"{note[:1].upper()}{note[1:]}."]


def _draw_scores(figure: Figure, found: Outcome) -> None:
    axes, arms = figure.subplots(), list(reversed(rank_arms(found)))
    for place, arm in enumerate(arms):
        axes.plot(arm.scores, [place] * len(arm.scores), "o", color=PALETTE[1], alpha=0.75)
        axes.plot([arm.mean] * 2, [place - 0.3, place + 0.3], color=PALETTE[0], linewidth=2)
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.xaxis.set_major_formatter(lambda value, _: format_score(found, value))
    axes.locator_params(axis="x", nbins=6)
    axes.set_title(f"{found.measure.name}, {found.measure.better} is better", loc="left", fontsize=10)
    axes.grid(axis="x")


def write_comparison_report(found: Outcome, done: Sequence[FinishedTrial], folder: Path) -> Path:
    """Write `report.html`, and return its path; without matplotlib it says how to get the curves."""
    ranked = rank_arms(found)
    scores = [Bar(arm.name, arm.mean, ", ".join(format_score(found, score) for score in arm.scores),
                  ours=bool(found.pairs) and arm is ranked[0]) for arm in ranked]
    curves = [read_curve(arm, [one.trial.folder for one in done if one.trial.arm == arm.name]) for arm in found.arms]
    drawn = draw_or_explain(lambda figure: draw_curves(figure, curves), PICTURE_HEIGHT, caption=CURVES_CAPTION)
    return write_page(folder / REPORT_FILE, "comparison.html", title=found.experiment.name, found=found, scores=scores,
                      arms=arms_table(found), pairs=pairs_table(found), footnote=measure_footnote(found), curves=drawn)
