"""`report.html` of a fine-tuning: scores beside simple methods, errors, the data, the settings; nothing but a browser
is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.files import write_text
from saucier.finetuning.config import Finetuning
from saucier.finetuning.outcome import Measured, hardest
from saucier.inspection.html import Html, element, table
from saucier.inspection.report import FILE_NAME, document
from saucier.inspection.report_charts import ACCENT, INK, Bar, bars, drawing
from saucier.inspection.report_run import METRICS, read_metrics
from saucier.inspection.report_sections import record, section
from saucier.tasks.scores.scored import Score, per_class
from saucier.tasks.scores.table import interval_text, number
from saucier.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWN = "this model"
MOST_CLASSES = 20
"""Classes up to which a table of confusions is drawn."""
HEIGHT = 2.6


def write_report(folder: Path, settings: Finetuning, task: Task[Any], found: Sequence[Measured],
                 told: Sequence[str]) -> Path:
    """Write `report.html`, and return its path. `told`: what was said of the data before training."""
    target = folder / FILE_NAME
    parts = [part for one in found for part in split_sections(task, one)]
    write_text(target, document(settings.name, title_block(settings), *parts, curve_section(folder / METRICS),
                                data_section(told), section("Settings", record(settings.as_dict()))))
    return target


def title_block(settings: Finetuning) -> Html:
    """Name the fine-tuning."""
    return element("header", element("p", "Saucier · report of a fine-tuning", class_="eyebrow"),
                   element("h1", settings.name),
                   element("p", f"{settings.task.kind.replace('_', ' ')}, from {settings.model}", class_="lead"))


def split_sections(task: Task[Any], found: Measured) -> list[Html]:
    """Show one split: scores, classes, confusions, the hardest errors."""
    rows = f"{len(found.examples):,} rows"
    parts: list[Html] = [*headline(found), scores_table(found), *class_parts(task, found)]
    errors = list(hardest(task, found))
    if errors:
        parts += [element("h3", "The surest errors"), element("ul", *(element("li", line) for line in errors))]
    return [section(f"{found.split}: {rows}", *parts)]


def headline(found: Measured) -> list[Html]:
    """Draw the first score beside those of simple methods, where it can be drawn from zero."""
    first = found.scores[0].name
    drawn = [Bar(name, score.value, f"95 % interval {interval_text(score.low, score.high)}", ours=name == OWN)
             for name, scores in [(OWN, found.scores), *found.beside] for score in scores if score.name == first]
    return [bars(drawn, label=first)] if all(one.value >= 0 for one in drawn) else []


def scores_table(found: Measured) -> Html:
    """Show every score with its interval, ours and those of simple methods."""
    sides = [(name, {one.name: one for one in scores}) for name, scores in [(OWN, found.scores), *found.beside]]
    rows = [[score.name, *(cell(scores.get(score.name)) for _, scores in sides), f"{score.count:,} {score.unit}"]
            for score in found.scores]
    return table(["", *(name for name, _ in sides), ""], rows, numbers=range(1, len(sides) + 2), class_="plain")


def cell(score: Score | None) -> str:
    """Write a score with its interval; nothing for a simple method of another task of a mixture."""
    return "" if score is None else f"{number(score.value)} ({interval_text(score.low, score.high)})"


def class_parts(task: Task[Any], found: Measured) -> list[Html]:
    """Show precision, recall and F1 of each class, and which is taken for which."""
    golds = [task.gold(one) for one in found.examples]
    said = [one.prediction for one in found.answers]
    classes = per_class(task.scored_as, golds, said)
    if not classes:
        return []
    rows = [[one.name, number(one.precision), number(one.recall), number(one.f1), f"{one.count:,}"] for one in classes]
    parts = [element("h3", "Class by class"),
             table(["", "precision", "recall", "F1", "rows"], rows, numbers=range(1, 5), class_="plain")]
    if task.scored_as == "classes" and len(classes) <= MOST_CLASSES:
        parts += [element("h3", "Taken for"), confusions([str(one.name) for one in classes], golds, said)]
    return parts


def confusions(names: Sequence[str], golds: Sequence[Any], said: Sequence[Any]) -> Html:
    """Count which class (line) was taken for which (column)."""
    counts = Counter(zip(golds, said, strict=True))
    rows = [[gold, *(f"{counts[gold, other]:,}" if counts[gold, other] else "" for other in names)] for gold in names]
    return table(["is \\ said", *names], rows, numbers=range(1, len(names) + 1), class_="plain")


def curve_section(metrics: Path) -> Html:
    """Draw the training loss, or say what is missing for it."""
    points = [(line["step"], line["loss"]) for line in read_metrics(metrics) if "loss" in line]
    if not points:
        return Html()

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), color=ACCENT, linewidth=1.4)
        axes.set_title("training loss", loc="left", fontsize=10, color=INK)
        axes.set_xlabel("updates")
        axes.grid(axis="y")

    try:
        return section("Training", element("figure", drawing(draw, HEIGHT)))
    except InputError as error:
        return section("Training", element("p", str(error), class_="note"))


def data_section(told: Sequence[str]) -> Html:
    """Repeat what was said of the data."""
    return section("Data", element("ul", *(element("li", line.strip()) for line in told)))
