"""Results of a fine-tuning: scores with intervals next to simple methods, the hardest errors, and `report.html`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import escape_direction_marks
from saucier.jobs.finetuning.data import shorten_text
from saucier.jobs.finetuning.finished import BaselineVerdict
from saucier.jobs.finetuning.settings import Finetuning
from saucier.jobs.score import format_interval, format_score
from saucier.plain import json_value
from saucier.report.page import ACCENT, INK, REPORT_FILE, Bar, Picture, draw_or_explain, write_page
from saucier.report.results import METRICS, read_metrics
from saucier.table import Table
from saucier.tasks.build import predict_simple_baselines
from saucier.tasks.definitions import MetricConfig, Texts
from saucier.tasks.metrics.metric import Metric
from saucier.tasks.prediction_files import ID, PREDICTION, PredictionRow
from saucier.tasks.scores import Score, choose_metric, metrics_for, per_class, score_difference, scored
from saucier.tasks.task import Answer, Json, ScoredPart, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_ERRORS = 5
"""Errors that are shown."""
FEW_UPDATES = 300
"""With fewer updates more epochs are advised."""
FEW_ROWS = 2_000
"""With fewer rows more of them are advised."""
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
    verdicts: tuple[BaselineVerdict, ...] = ()
    """For each part that simple methods are known for, how the model does against the best of them."""

    def lines(self) -> Iterator[str]:
        """Yield the lines printed about the scores; of many parts only those of all together."""
        many = self.parts > MOST_PARTS and bool(self.whole)
        yield format_scores(self.whole if many else self.scores)
        if many:
            yield f"  {self.parts} tasks, each by itself in scores.json and report.html"
        else:
            yield from (f"  {method}: {format_scores(scores)}" for method, scores in self.baselines)
            yield from (f"  {one.line()}" for one in self.verdicts)

    def pairs(self) -> Iterator[tuple[Any, Answer]]:
        """Yield each example with its answer."""
        yield from zip(self.examples, self.answers, strict=True)

    def as_json(self) -> dict[str, Any]:
        """Return it without the answers."""
        return {"rows": len(self.examples), "scores": json_value(self.scores),
                "baselines": json_value(dict(self.baselines)), "verdicts": json_value(self.verdicts)}


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
    return SplitScores(split, examples, answers, (*whole, *(score for own, *_ in found for score in own)),
                       tuple(method for _, simple, _ in found for method in simple), whole, len(parts),
                       tuple(verdict for *_, verdict in found if verdict is not None))


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


ScoredMethods = list[tuple[str, tuple[Score, ...]]]


def score_part(part: ScoredPart, answers: Sequence[Answer], train: Sequence[Any] | None,
               further: Sequence[MetricConfig] = ()) -> tuple[
        tuple[Score, ...], ScoredMethods, BaselineVerdict | None]:
    """Score the answers to one part, and those of simple methods; a part's name comes before its metrics'.

    Returns also whether the model beats the best of them.
    """
    golds = part.task.group_for_scoring(part.examples, [part.task.gold(one) for one in part.examples])
    simple = predict_simple_baselines(part.task, train, part.examples) if train is not None else []
    predictions: list[list[Json]] = [[one.prediction for one in answers], *(one.predictions for one in simple)]
    grouped = [part.task.group_for_scoring(part.examples, one) for one in predictions]
    kind = part.task.scored_as
    metrics = (*metrics_for(kind, golds, *grouped), *(choose_metric(one, kind, golds, *grouped) for one in further))
    before = f"{part.name}: " if part.name else ""
    own, *others = ([replace(score, name=before + score.name) for score in scored(metrics, golds, one)]
                    for one in grouped)
    named = [(before + method.name, tuple(scores)) for method, scores in zip(simple, others, strict=True)]
    return tuple(own), named, judge_baselines(metrics[0], before, golds, grouped, named)


def judge_baselines(metric: Metric, before: str, golds: Sequence[Any], predictions: Sequence[Sequence[Any]],
                    simple: ScoredMethods) -> BaselineVerdict | None:
    """Compare the first predictions with those of the best simple method; None where there is none, or no number."""
    sign = 1 if metric.better == "higher" else -1
    known = [(sign * scores[0].value, place) for place, (_, scores) in enumerate(simple)
             if math.isfinite(scores[0].value)]
    if not known:
        return None
    _, best = max(known)
    found = score_difference(metric, golds, (predictions[0], predictions[best + 1]))
    return BaselineVerdict(simple[best][0], before + metric.name, found.value, found.low, found.high,
                           found.low > 0 if sign > 0 else found.high < 0)


def suggest_improvements(settings: Finetuning, learned: int) -> Iterator[str]:
    """Yield what to try where a model did not beat a simple method, the likeliest help first.

    `learned`: rows that it learned from.
    """
    task, training = settings.task, settings.training
    if isinstance(task, Texts) and (task.pick is None or task.pick.kind != "mean"):
        yield "read texts by the mean of their vectors (task.pick.kind=mean)"
    if settings.search is None:
        yield "search for rate, epochs and batch (--search 12)"
    if training.epochs * learned / training.batch < FEW_UPDATES:
        yield f"more epochs (training.epochs={max(2 * training.epochs, 5):g})"
    if settings.range_test is None:
        yield "find the rate (--find-rate)"
    if settings.tuning is not None:
        yield "let all of the model learn (tuning=null)"
    if learned < FEW_ROWS:
        yield f"more rows: {learned:,} are few"
    yield "a larger model (--model)"


def format_scores(scores: Sequence[Score]) -> str:
    """Write scores in one line, each with its 95 % interval."""
    return ", ".join(f"{one.name} {one.value:.4g} ({one.low:.4g}–{one.high:.4g})" for one in scores)


def prediction_row(task: Task, example: Any, answer: Answer, columns: Mapping[str, Any] | None = None) -> PredictionRow:
    """Return one answer as a row of a file of predictions: what is right where it is known, confidence, texts.

    `columns`: what else the row held; a name that is taken gets `row_` before it.
    """
    sure = {} if answer.confidence is None else {"confidence": round(answer.confidence, 4)}
    own = sure | answer.more | {"texts": example.texts}
    kept = {f"row_{name}" if name in (PREDICTION, *own) else name: value for name, value in (columns or {}).items()
            if name != ID or str(value) != example.name}
    kept = {f"row_{name}" if name == ID else name: value for name, value in kept.items()}
    return PredictionRow(answer.prediction, task.gold(example), example.name, own | kept)


def format_answer(task: Task, example: Any, answer: Answer) -> str:
    """Write one answer for a person."""
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%})"
    text = shorten_text(" ‖ ".join(example.texts))
    return escape_direction_marks(f"{shorten_text(answer_text(task, example, answer))}{sure}\t{text}")


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
                            said: Mapping[str, Sequence[str]], *, rates: Sequence[tuple[float, float]] = (),
                            trials: Table | None = None, learned: int = 0) -> Path:
    """Write `report.html`, and return its path. `said`: what was printed before training, by what it was about.

    `rates`: what a range test measured; `trials`: what a search tried; `learned`: rows that were learned from.
    """
    splits = [{"name": f"{one.split}: {len(one.examples):,} rows", "bars": headline_bars(one), "full": full_score(one),
               "measured": one.scores[0].name, "scores": scores_table(one), "classes": class_tables(task, one),
               "errors": list(hardest_errors(task, one)), "verdicts": list(verdict_lines(one, settings, learned))}
              for one in found]
    return write_page(folder / REPORT_FILE, "finetuning.html", title=settings.name, settings=settings, splits=splits,
                      loss=draw_loss(folder / METRICS), said=said, trials=trials,
                      distances=tabulate_distances(folder / METRICS, settings),
                      rates=draw_rates(rates, settings.training.optimizer.learning_rate))


def verdict_lines(found: SplitScores, settings: Finetuning, learned: int) -> Iterator[str]:
    """Yield whether simple methods were beaten, and what to try where they were not."""
    yield from (one.line() for one in found.verdicts)
    if not all(one.beaten for one in found.verdicts):
        yield f"try: {'; '.join(suggest_improvements(settings, learned))}"


def headline_bars(found: SplitScores) -> list[Bar]:
    """Return the first score next to those of simple methods, where it can be drawn from zero."""
    first = found.scores[0].name
    drawn = [Bar(name, score.value, f"95 % interval {format_interval(score.low, score.high)}", ours=name == OWN_NAME)
             for name, scores in [(OWN_NAME, found.scores), *found.baselines] for score in scores
             if score.name == first]
    return drawn if all(one.value >= 0 for one in drawn) else []


def full_score(found: SplitScores) -> float | None:
    """Return the best possible score, 1 or 100, to which bars are drawn; None for an error, which has no largest."""
    name, drawn = found.scores[0].name, [bar.value for bar in headline_bars(found)]
    if "error" in name or "perplexity" in name or not drawn:
        return None
    return 1.0 if max(drawn) <= 1.0 else 100.0


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
    tables = {"Scores by class": Table(("", "precision", "recall", "F1", "rows"), rows, numbers=range(1, 5))}
    if task.scored_as == "classes" and len(classes) <= MOST_CLASSES:
        names, counts = [str(one.name) for one in classes], Counter(zip(golds, predictions, strict=True))
        rows = [[gold, *(f"{counts[gold, other]:,}" for other in names)] for gold in names]
        tables["Confusion matrix"] = Table(["right \\ predicted", *names], rows, numbers=range(1, len(names) + 1))
    return tables


def tabulate_distances(metrics: Path, settings: Finetuning) -> Table | None:
    """Show how far the student was from its teacher on held-out rows, by loss, at each evaluation; None without one."""
    if settings.distillation is None:
        return None
    kinds = tuple(name for name, _ in settings.distillation.named())
    lines = [line["evaluation"] | {"step": line["step"]} for line in read_metrics(metrics) if "evaluation" in line]
    names = list(dict.fromkeys(name for line in lines for name in line if name.startswith(kinds)))
    rows = [[f"{line['step']:,}", *(f"{line[name]:.4g}" for name in names)] for line in lines]
    return Table(["updates", *(name.replace("_", " ") for name in names)], rows, numbers=range(len(names) + 1))


def draw_rates(points: Sequence[tuple[float, float]], chosen: float) -> Picture | None:
    """Draw a range test, or say what is missing for it; nothing where there was none."""
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(*zip(*points, strict=True), color=ACCENT, linewidth=1.4)
        axes.axvline(chosen, color=INK, linewidth=1)
        axes.set_xscale("log")
        axes.set_title(f"range test: the loss at rising rates; trained at {chosen:.1e}", loc="left", fontsize=10,
                       color=INK)
        axes.set_xlabel("learning rate")
        axes.grid(axis="y")

    return draw_or_explain(draw, CURVE_HEIGHT) if points else None


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
