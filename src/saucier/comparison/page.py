"""A comparison, or a scaling law, as a page of Markdown with a picture beside it. What people wrote there stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.comparison.config import (
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
from saucier.comparison.curves import PALETTE
from saucier.comparison.outcome import Outcome
from saucier.comparison.scaling import Fit
from saucier.comparison.scaling_runs import HEADINGS, draw_law, exponents_text, law_text, rows
from saucier.comparison.table import arm_headings, arm_row, footnote, pair_headings, pair_row, ranked, score_text
from saucier.files import write_text
from saucier.inspection.report_charts import picture
from saucier.inspection.units import duration, quantity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOSING = "## What it says"
"""The heading of the part that people write."""
UNWRITTEN = "Nobody has yet written what these figures say."
DOTS, LINE = 0.32, 0.8
"""Inches of the picture for an arm, and for all that is around the arms."""


def write_study(found: Outcome, page: Path) -> None:
    """Write a comparison's page and picture. Raises `InputError` where matplotlib is missing."""
    drawn = picture(lambda figure: _draw_scores(figure, found), LINE + DOTS * len(found.arms))
    asked = found.experiment
    paper = [f"After {asked.published.paper}; its measure is {asked.published.measure}."] if asked.published else []
    _write(page, drawn, asked.name, [asked.about] * bool(asked.about) + paper, [
        f"```\n{command(asked)}\n```", table(["", ""], settings(asked)),
        "## Scores", f"![{found.measure.name} of each arm]({page.stem}.svg)", seeds_note(asked),
        table(arm_headings(found), [arm_row(found, arm) for arm in ranked(found)]), *found.notes,
        *differences(found)])


def write_law(found: Fit, page: Path) -> None:
    """Write a scaling law's page and picture. Raises `InputError` where matplotlib is missing."""
    drawn = picture(lambda figure: draw_law(figure, found))
    _write(page, drawn, "scaling", [f"**{law_text(found)}**", *exponents_text(found)], [
        f"![held-out loss against {found.law.quantities[0]}]({page.stem}.svg)",
        "Dots were fitted, crosses were left out; lines are the law.", table(HEADINGS, rows(found)),
        f"The fitted runs are off by {100 * found.error:.1f} % (root mean square)."])


def _write(page: Path, drawn: str, name: str, lead: Sequence[str], content: Sequence[str]) -> None:
    title = "# " + name.replace("-", " ").capitalize()
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page.with_suffix(".svg"), "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")
    write_text(page, "\n\n".join([title, *lead, *content, closing(page)]).rstrip() + "\n")


def closing(page: Path) -> str:
    """Return the part that people wrote on an earlier version of the page."""
    old = page.read_text(encoding="utf-8") if page.is_file() else ""
    return old[old.index(CLOSING):] if CLOSING in old else f"{CLOSING}\n\n{UNWRITTEN}"


def command(asked: Experiment) -> str:
    """Return the command that does it again, files by their names alone."""
    words = ["saucier compare", f"{asked.name}.yaml"]
    files, held_out = asked.changes.get("data.files"), asked.changes.get("data.held_out")
    words += ["--data", *map(file_name, files)] if files else []
    words += ["--held-out", *map(file_name, held_out["files"])] if isinstance(held_out, dict) else []
    if isinstance(asked.judge, FineTuned):
        words += ["--judge", f"{asked.judge.kind}:{file_name(asked.judge.train)},{file_name(asked.judge.dev)}"]
    return " ".join(words)


def file_name(path: str) -> str:
    """Return a path's last part: a page says nothing of the machine that made it."""
    return Path(path).name


def settings(asked: Experiment) -> list[list[str]]:
    """Say what was the same for all arms, and what each changed."""
    shared = {key: value for key, value in asked.changes.items() if key not in ("data.files", "data.held_out")}
    own = [[f"`{arm.name}`", changes_text(arm.recipe, arm.changes, arm.budget)] for arm in asked.arms]
    return [["budget of a run", budget_text(asked.budget)], ["seeds", str(asked.seeds)],
            ["judge", judge_text(asked.judge)], ["all arms", changes_text("", shared, None) or "as their recipes say"],
            *own]


def changes_text(recipe: str, changes: dict[str, Any], budget: Budget | None) -> str:
    """Write a recipe with its changes."""
    said = [f"`{recipe}`"] if recipe else []
    said += [f"`{key}: {value}`".replace("'", "") for key, value in changes.items()]
    return ", ".join(said + ([budget_text(budget)] if budget else []))


def budget_text(budget: Budget) -> str:
    """Write a budget."""
    match budget:
        case Seconds(amount=amount):
            return duration(amount)
        case Parameters(amount=amount):
            return f"{quantity(amount)} parameters, steps as the recipes say"
        case _:
            return f"{quantity(budget.amount)} {budget.kind.replace('flops', 'FLOPs')}"


def judge_text(judge: Judge) -> str:
    """Say by what the runs were judged."""
    match judge:
        case HeldOutLoss():
            return "loss on the held-out text"
        case Adaptation():
            asked = str(judge.objective.model_dump(exclude_unset=True)).replace("'", "")
            return f"loss on the held-out text, after all have gone on for {judge.steps:,} updates with `{asked}`"
        case Classification() | Tagging():
            rows, measure = ("texts", "") if isinstance(judge, Classification) else ("sentences", "tag ")
            texts = f"the {rows}" if judge.limit is None else f"the first {judge.limit:,} {rows}"
            return (f"{measure}accuracy on all of {file_name(judge.dev)} after {judge.epochs} epochs on {texts} of "
                    f"{file_name(judge.train)}, {judge.batch} in a batch, at a rate of {judge.learning_rate:g}")


def seeds_note(asked: Experiment) -> str:
    """Say what the picture shows."""
    return "Each dot is a seed, each line a mean." if asked.seeds > 1 else "Each dot is a run."


def differences(found: Outcome) -> list[str]:
    """Return the table of pairs; nothing where the scores cannot be compared."""
    if not found.pairs:
        return []
    return ["## Differences", table(pair_headings(found), [pair_row(found, pair) for pair in found.pairs]),
            sentence(footnote(found))]


def sentence(text: str) -> str:
    """Begin with a capital, and end with a full stop."""
    return text[:1].upper() + text[1:] + "."


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Lay out a table; columns of numbers are those to the right of a name."""
    written = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in (headings, *lines)]
    return "\n".join([written[0], "|" + "---|" * len(headings), *written[1:]])


def _draw_scores(figure: Figure, found: Outcome) -> None:
    axes, arms = figure.subplots(), list(reversed(ranked(found)))
    for place, arm in enumerate(arms):
        axes.plot(arm.scores, [place] * len(arm.scores), "o", color=PALETTE[1], alpha=0.75)
        axes.plot([arm.mean] * 2, [place - 0.3, place + 0.3], color=PALETTE[0], linewidth=2)
    axes.set_yticks(range(len(arms)), [arm.name for arm in arms])
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.xaxis.set_major_formatter(lambda value, _: score_text(found, value))
    axes.locator_params(axis="x", nbins=6)
    axes.set_title(f"{found.measure.name}, {found.measure.better} is better", loc="left", fontsize=10)
    axes.grid(axis="x")
