"""Results of a fine-tuning: scores with intervals next to simple methods, the hardest errors, and `report.html`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.jobs.finetuning.data import shorten_text
from saucier.jobs.finetuning.settings import Finetuning
from saucier.jobs.score import format_interval, format_score
from saucier.plain import json_value
from saucier.report.page import ACCENT, INK, REPORT_FILE, Bar, Picture, draw_or_explain, write_page
from saucier.report.results import METRICS, read_metrics
from saucier.table import Table
from saucier.tasks.build import predict_simple_baselines
from saucier.tasks.definitions import MetricConfig
from saucier.tasks.prediction_files import PredictionRow
from saucier.tasks.scores import Score, choose_metric, metrics_for, per_class, scored
from saucier.tasks.task import Answer, Json, ScoredPart, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_ERRORS = 5
"""Errors that are shown."""
MOST_PARTS = 12
"""Parts of a mixture whose scores are printed one by one."""


@dataclass(frozen=True, slots=True)
class SplitScores:
    """The answers to one split, and what they are worth."""

    split: str
    examples: Sequence[Any]
    answers: Sequence[Answer]
    scores: tuple[Score, ...]
    baselines: tuple[tuple[str, tuple[Score, ...]], ...] = ()
    """Simple methods, by name."""
    whole: tuple[Score, ...] = ()
    """Those of the scores that are about all parts together."""
    parts: int = 1
    """Parts that are scored separately."""

    def lines(self) -> Iterator[str]:
        """Yield the lines printed about the scores; of many parts only those of all together."""
        many = self.parts > MOST_PARTS and bool(self.whole)
        yield format_scores(self.whole if many else self.scores)
        if many:
            yield f"  {self.parts} tasks, each by itself in scores.json and report.html"
        else:
            yield from (f"  {method}: {format_scores(scores)}" for method, scores in self.baselines)

    def pairs(self) -> Iterator[tuple[Any, Answer]]:
        """Yield each example with its answer."""
        yield from zip(self.examples, self.answers, strict=True)

    def as_json(self) -> dict[str, Any]:
        """Return it without the answers."""
        return {"rows": len(self.examples), "scores": json_value(self.scores),
                "baselines": json_value(dict(self.baselines))}


def score_answers(task: Task, split: str, examples: Sequence[Any], answers: Sequence[Answer],
                  train: Sequence[Any] = (), *, metrics: Sequence[MetricConfig] = ()) -> SplitScores:
    """Score answers on one split, and those of simple methods that learn from the training rows, by task.

    `metrics`: in addition to the usual ones of each task.
    """
    learned = {part.name: part.examples for part in task.scored_parts(train)} if train else {}
    parts = task.scored_parts(examples)
    found = [score_part(part, [answers[number] for number in part.numbers], learned.get(part.name), metrics)
             for part in parts]
    whole = score_together(task, parts, examples, answers)
    return SplitScores(split, examples, answers, (*whole, *(score for own, _ in found for score in own)),
                       tuple(method for _, simple in found for method in simple), whole, len(parts))


def score_together(task: Task, parts: Sequence[ScoredPart], examples: Sequence[Any],
                   answers: Sequence[Answer]) -> tuple[Score, ...]:
    """Score several parts together, where they are all of one kind."""
    kinds = {part.task.scored_as for part in parts}
    if len(parts) < 2 or len(kinds) > 1:
        return ()
    golds = task.group_for_scoring(examples, [task.gold(one) for one in examples])
    predictions = task.group_for_scoring(examples, [one.prediction for one in answers])
    return tuple(replace(score, name=f"all: {score.name}")
                 for score in scored(metrics_for(kinds.pop(), golds, predictions), golds, predictions))


def score_part(part: ScoredPart, answers: Sequence[Answer], train: Sequence[Any] | None,
               further: Sequence[MetricConfig] = ()) -> tuple[
        tuple[Score, ...], list[tuple[str, tuple[Score, ...]]]]:
    """Score the answers to one part, and those of simple methods; a part's name comes before its metrics'."""
    golds = part.task.group_for_scoring(part.examples, [part.task.gold(one) for one in part.examples])
    simple = predict_simple_baselines(part.task, train, part.examples) if train is not None else []
    predictions: list[list[Json]] = [[one.prediction for one in answers], *(one.predictions for one in simple)]
    grouped = [part.task.group_for_scoring(part.examples, one) for one in predictions]
    kind = part.task.scored_as
    metrics = (*metrics_for(kind, golds, *grouped), *(choose_metric(one, kind, golds, *grouped) for one in further))
    before = f"{part.name}: " if part.name else ""
    own, *others = ([replace(score, name=before + score.name) for score in scored(metrics, golds, one)]
                    for one in grouped)
    return tuple(own), [(before + method.name, tuple(scores)) for method, scores in zip(simple, others, strict=True)]


def format_scores(scores: Sequence[Score]) -> str:
    """Write scores in one line, each with its 95 % interval."""
    return ", ".join(f"{one.name} {one.value:.4g} ({one.low:.4g}–{one.high:.4g})" for one in scores)


def prediction_row(task: Task, example: Any, answer: Answer) -> PredictionRow:
    """Return one answer as a row of a file of predictions: what is right where it is known, confidence, texts."""
    sure = {} if answer.confidence is None else {"confidence": round(answer.confidence, 4)}
    return PredictionRow(answer.prediction, task.gold(example), example.name,
                         sure | answer.more | {"texts": example.texts})


def format_answer(task: Task, example: Any, answer: Answer) -> str:
    """Write one answer for a person."""
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%})"
    return f"{shorten_text(answer_text(task, example, answer))}{sure}\t{shorten_text(' ‖ '.join(example.texts))}"


def answer_text(task: Task, example: Any, answer: Answer) -> str:
    """Write a prediction for a person; a written text that names no class is marked so."""
    if answer.prediction is None and "text" in answer.more:
        return f"{answer.more['text']} (no class)".strip()
    return task.format_prediction(example, answer.prediction)


def hardest_errors(task: Task, found: SplitScores) -> Iterator[str]:
    """Yield the errors that the model was surest of (of numbers: the farthest off)."""
    rows = [(error_size(answer, task.gold(example)), example, answer) for example, answer in found.pairs()]
    for wrong, example, answer in sorted(rows, key=lambda row: -row[0])[:SHOWN_ERRORS]:
        if wrong > 0:
            given, right = map(shorten_text, (answer_text(task, example, answer),
                                              task.format_prediction(example, task.gold(example))))
            yield (f"{example.name}: {given}, not {right}: "
                   f"{shorten_text(' ‖ '.join(example.texts))}")


def error_size(answer: Answer, gold: Any) -> float:
    """Return how wrong an answer is: 0 where it is right."""
    if isinstance(answer.prediction, float) and isinstance(gold, int | float):
        return abs(answer.prediction - gold)
    right = answer.prediction in (gold or [""]) if isinstance(gold, list) and isinstance(answer.prediction, str) \
        else answer.prediction == gold
    return 0.0 if right else answer.confidence if answer.confidence is not None else 1.0


OWN_NAME = "this model"
MOST_CLASSES = 20
"""Classes up to which a table of confusions is drawn."""
CURVE_HEIGHT = 2.6


def write_finetuning_report(folder: Path, settings: Finetuning, task: Task, found: Sequence[SplitScores],
                            data_lines: Sequence[str]) -> Path:
    """Write `report.html`, and return its path. `data_lines`: what was printed about the data before training."""
    splits = [{"name": f"{one.split}: {len(one.examples):,} rows", "bars": headline_bars(one),
               "measured": one.scores[0].name, "scores": scores_table(one), "classes": class_tables(task, one),
               "errors": list(hardest_errors(task, one))} for one in found]
    return write_page(folder / REPORT_FILE, "finetuning.html", title=settings.name, settings=settings, splits=splits,
                      loss=draw_loss(folder / METRICS), data_lines=data_lines)


def headline_bars(found: SplitScores) -> list[Bar]:
    """Return the first score next to those of simple methods, where it can be drawn from zero."""
    first = found.scores[0].name
    drawn = [Bar(name, score.value, f"95 % interval {format_interval(score.low, score.high)}", ours=name == OWN_NAME)
             for name, scores in [(OWN_NAME, found.scores), *found.baselines] for score in scores
             if score.name == first]
    return drawn if all(one.value >= 0 for one in drawn) else []


def scores_table(found: SplitScores) -> Table:
    """Show every score with its interval, ours and those of simple methods."""
    sides = [(name, {one.name: one for one in scores}) for name, scores in [(OWN_NAME, found.scores), *found.baselines]]
    cells = [{name: f"{format_score(score.value)} ({format_interval(score.low, score.high)})"
              for name, score in scores.items()} for _, scores in sides]
    rows = [[score.name, *(column.get(score.name, "") for column in cells), f"{score.count:,} {score.unit}"]
            for score in found.scores]  # a simple method of another task of a mixture has no such score
    return Table(["", *(name for name, _ in sides), ""], rows, numbers=range(1, len(sides) + 2))


def class_tables(task: Task, found: SplitScores) -> dict[str, Table]:
    """Show precision, recall and F1 of each class, and which is taken for which; nothing where there are none."""
    golds = [task.gold(one) for one in found.examples]
    predictions = [one.prediction for one in found.answers]
    classes = per_class(task.scored_as, golds, predictions)
    if not classes:
        return {}
    rows = [[one.name, format_score(one.precision), format_score(one.recall), format_score(one.f1), f"{one.count:,}"]
            for one in classes]
    tables = {"Class by class": Table(("", "precision", "recall", "F1", "rows"), rows, numbers=range(1, 5))}
    if task.scored_as == "classes" and len(classes) <= MOST_CLASSES:
        names, counts = [str(one.name) for one in classes], Counter(zip(golds, predictions, strict=True))
        rows = [[gold, *(f"{counts[gold, other]:,}" if counts[gold, other] else "" for other in names)]
                for gold in names]
        tables["Taken for"] = Table(["is \\ said", *names], rows, numbers=range(1, len(names) + 1))
    return tables


def draw_loss(metrics: Path) -> Picture | None:
    """Draw the training loss, or say what is missing for it."""
    points = [(line["step"], line["loss"]) for line in read_metrics(metrics) if "loss" in line]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), color=ACCENT, linewidth=1.4)
        axes.set_title("training loss", loc="left", fontsize=10, color=INK)
        axes.set_xlabel("updates")
        axes.grid(axis="y")

    return draw_or_explain(draw, CURVE_HEIGHT) if points else None
