"""What came of a compression: what each model kept and costs, the verdict on the bound, the front, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object
from saucier.jobs.comparison.outcome import SIGNIFICANCE_LEVEL
from saucier.jobs.compression.measurement import Measured, MetricResult, Share
from saucier.jobs.compression.settings import COMPRESSION_FILE, Compression, plan_models, read_compression
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.score import format_interval, format_score
from saucier.plain import format_bytes, format_quantity
from saucier.report.page import ACCENT, INK, LINE, REPORT_FILE, SECOND, SOFT, draw_or_explain, write_page
from saucier.result import Result
from saucier.table import Table
from saucier.tasks.metrics.statistics import holm
from saucier.tasks.prediction_files import read_predictions
from saucier.tasks.scores import metrics_for, score_difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTCOME_FILE, MEASURED, TEACHER = "outcome.json", "measured.json", "teacher"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model keeps what it must."""

    holds: bool
    """Whether the share on these rows is at least the bound."""
    sure: bool
    """Whether the whole interval is on that side."""
    line: str
    """In words."""


def judge(kept: Share, bound: float) -> Verdict:
    """Hold what a model keeps against the bound; of few rows the interval tells more than the share."""
    holds = kept.value >= bound
    sure = kept.low >= bound if holds else kept.high < bound
    said = f"keeps {kept.value:.1%} ({kept.low:.1%} … {kept.high:.1%})"
    least = f"the bound of {bound:.1%}"
    match holds, sure:
        case True, True:
            return Verdict(holds, sure, f"{said}: {least} holds")
        case True, False:
            return Verdict(holds, sure, f"{said}: {least} holds here; too few rows to be sure of it")
        case False, True:
            return Verdict(holds, sure, f"{said}: {least} is broken")
    return Verdict(holds, sure, f"{said}: {least} is broken here; too few rows to be sure of it")


class FrontPair(Config):
    """Two models of the front: does the larger one really score otherwise?"""

    larger: str
    """The one that takes more bytes on disk."""
    smaller: str
    """The next smaller one."""
    metric: str
    """The first one of the task."""
    difference: float
    """The larger one's score less the smaller one's, on the same held-out rows."""
    low: float
    """With `high` the 95 % interval, paired over rows."""
    high: float
    """See `low`."""
    p: float
    """Of approximate randomization, corrected for the number of pairs (Holm)."""
    verdict: Literal["better", "worse", "not enough data to tell"]
    """Of the larger one."""


@dataclass(frozen=True, slots=True)
class Compressed(Result):
    """A finished compression: the models, what they keep, and what they cost."""

    folder: Path
    settings: Compression
    teacher: Measured
    """The model that it began with."""
    steps: tuple[Measured, ...]
    """The models that were made, of a chain in its order; those that break the bound are among them."""
    pairs: tuple[FrontPair, ...] = ()
    """Neighbours on the front of size and score."""

    @property
    def kept(self) -> tuple[Measured, ...]:
        """The models that keep what they must."""
        return tuple(one for one in self.steps if judge(one.kept, self.settings.keep).holds)

    @property
    def model(self) -> Path | None:
        """The folder of the smallest model that keeps what it must, of equal ones the last; None where none does."""
        best = min(reversed(self.kept), key=lambda one: one.size.disk, default=None)
        return None if best is None else self.folder / "steps" / best.name / "model"

    @property
    def fastest(self) -> Path | None:
        """The folder of the model that answers one row in the least time of those that keep what they must.

        None where none of them is faster than the model that the chain began with.
        """
        faster = (one for one in self.kept if AXES["time"](one) < 1)
        best = min(faster, key=AXES["time"], default=None)
        return None if best is None else self.folder / "steps" / best.name / "model"

    @property
    def stopped(self) -> bool:
        """Whether a model broke the bound."""
        return len(self.kept) < len(self.steps)

    @property
    def failed(self) -> bool:
        """Whether not one model keeps what it must."""
        return not self.kept

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        models = (self.teacher, *self.steps)
        return {"model": None if self.model is None else str(self.model.relative_to(self.folder)),
                "stopped": self.stopped, "keep": self.settings.keep,
                "front": [one.name for one in front(models, AXES["disk"])],
                "pairs": [one.model_dump(mode="json") for one in self.pairs],
                "teacher": self.teacher.model_dump(mode="json"),
                "steps": [one.model_dump(mode="json") for one in self.steps],
                "cost": {"front": [one.name for one in front(models, AXES["time"])]}}

    def view(self) -> RenderableType:
        """Return the tables of what is kept and what it costs, and what to use."""
        compared = (pairs_table(self), Text()) if self.pairs else ()
        return Group(kept_table(self), Text(), cost_table(self), Text(), *compared,
                     *(Text(line, style="yellow") for line in self.notes()),
                     *(Text(line, style="green" if self.kept else "red") for line in self.advice()),
                     *([Text(self.speed_advice, style="green")] if self.fastest not in (None, self.model) else []))

    def notes(self) -> list[str]:
        """Return what a reader must know."""
        return list(dict.fromkeys(f"{one.name}: {note}" for one in self.steps for note in one.notes))

    def advice(self) -> Iterator[str]:
        """Yield what broke the bound, what was not made, and how the model is used."""
        broken = [one.name for one in self.steps if one not in self.kept]
        if broken:
            yield f"{', '.join(broken)}: the bound is broken; the folder is kept, and nothing was made of it"
        made = {one.name for one in self.steps}
        missing = [node.name for first in plan_models(self.settings) for node in first.walk() if node.name not in made]
        if missing:
            yield f"not made: {', '.join(missing)}"
        if self.model is None:
            yield "no model keeps what it must: use the one that you have, a lower keep, or a gentler chain"
        else:
            yield f"the smallest that keeps enough: saucier predict {self.model} FILE"

    @property
    def speed_advice(self) -> str:
        """How the fastest model is used; empty where none is faster."""
        return "" if self.fastest is None else f"the fastest that keeps enough: saucier predict {self.fastest} FILE"


def read_measured(folder: Path) -> Measured:
    """Read what was measured of a model. Raises `InputError` for a damaged file."""
    path = folder / MEASURED
    try:
        return Measured.model_validate(read_object(path))
    except ValidationError as error:
        raise InputError(f"not a measurement: {str(error).splitlines()[0]}", where=str(path),
                         remedy="remove the file, so that the model is measured again") from error


def read_compressed(folder: Path) -> Compressed:
    """Read a compression, or as much as there is of one. Raises `InputError` for damaged files."""
    settings = read_compression(folder / COMPRESSION_FILE)
    places = [folder / "steps" / node.name for first in plan_models(settings) for node in first.walk()]
    pairs = read_object(folder / OUTCOME_FILE).get("pairs", ())
    return Compressed(folder, settings, read_measured(folder / TEACHER),
                      tuple(read_measured(one) for one in places if (one / MEASURED).is_file()),
                      tuple(FrontPair(**one) for one in pairs))


def compare_front(found: Compressed, splits: Splits) -> tuple[FrontPair, ...]:
    """Compare each model of the front with the next smaller one, on the same held-out rows.

    Rows are drawn, not seeds: a verdict is about these very models on other rows. Parts of a mixture are compared by
    the first one.
    """
    part = splits.task.scored_parts(splits.held_out)[0]
    golds = part.task.group_for_scoring(part.examples, [part.task.gold(one) for one in part.examples])
    models = list(reversed(front((found.teacher, *found.steps), AXES["disk"])))

    def answers(one: Measured) -> list[Any]:
        """Return what a model said of the part's rows."""
        place = found.folder / (TEACHER if one is found.teacher else f"steps/{one.name}")
        rows = read_predictions(str(place / "predictions" / "held-out.jsonl"))
        return part.task.group_for_scoring(part.examples, [rows[number].prediction for number in part.numbers])

    said = [answers(one) for one in models]
    metric = metrics_for(part.task.scored_as, golds, *said)[0]
    gaps = [score_difference(metric, golds, pair) for pair in pairwise(said)]
    corrected = holm([gap.units_p for gap in gaps])
    sign = 1 if metric.better == "higher" else -1
    return tuple(FrontPair(
        larger=large.name, smaller=small.name, metric=metric.name, difference=gap.value, low=gap.low, high=gap.high,
        p=p,
        verdict="not enough data to tell" if p >= SIGNIFICANCE_LEVEL else "better" if sign * gap.value > 0 else "worse")
        for (large, small), gap, p in zip(pairwise(models), gaps, corrected, strict=True))


def measured_lines(found: Measured) -> Iterator[str]:
    """Yield what is said of a model while the chain goes on."""
    for name, split in found.splits.items():
        scores = ", ".join(f"{one.name} {interval_text(one)}" for one in split.metrics)
        yield f"{name}: {scores}"
    speeds = ", ".join(f"{one.milliseconds:.3g} ms a row at batch {one.batch}" for one in found.cost.speeds)
    yield (f"{format_quantity(found.size.parameters)} parameters, {format_bytes(found.size.disk)} on disk; {speeds}")


def interval_text(one: MetricResult) -> str:
    """Write a metric with its interval."""
    if one.value is None:
        return "not defined"
    between = "" if one.low is None or one.high is None else f" ({format_interval(one.low, one.high)})"
    return format_score(one.value) + between


def share_text(share: Share) -> str:
    """Write a share with its interval."""
    return f"{share.value:.1%} ({share.low:.1%} … {share.high:.1%})"


def verdict_word(found: Compressed, one: Measured) -> str:
    """Return the verdict on a step in a word or two."""
    verdict = judge(one.kept, found.settings.keep)
    return ("holds" if verdict.holds else "broken") + ("" if verdict.sure else ", not sure")


def kept_table(found: Compressed) -> Table:
    """Show what each model keeps of the teacher's first score."""
    first = found.teacher.splits["held-out"].metrics[0].name
    rows = [["teacher", interval_text(found.teacher.splits["held-out"].metrics[0]), "", "", "", ""]]
    for one in found.steps:
        split = one.splits["held-out"]
        apart = split.agreement.divergence
        rows.append([one.name, interval_text(split.metrics[0]), share_text(split.kept), f"{split.agreement.value:.1%}",
                     "" if apart is None else f"{apart:.3g}", verdict_word(found, one)])
    return Table(("", f"{first}, {found.teacher.splits['held-out'].rows:,} held-out rows", "kept (95 % interval)",
                  "agrees with the teacher", "KL, nats", f"keep {found.settings.keep:.0%}"), rows,
                 numbers=(1, 2, 3, 4), colours={0: "cyan"})


def cost_table(found: Compressed) -> Table:
    """Show what each model costs, in bytes and in milliseconds a row."""
    batches = found.settings.measure.batches
    headings = ["", "parameters", "on disk", "in memory", "peak",
                *(words for batch in batches for words in (f"ms, batch {batch}", "faster", "by C kernels")),
                "FLOPs a row"]
    rows = [[one.name, format_quantity(one.size.parameters), smaller(one.size.disk, found.teacher.size.disk),
             format_bytes(one.size.weights), "" if one.cost.peak is None else format_bytes(one.cost.peak),
             *(cell for speed in one.cost.speeds for cell in (
                 f"{speed.milliseconds:.3g}", "" if one is found.teacher else f"{speed.ratio:.2f}×",
                 "" if speed.native_ratio is None else f"{speed.native_ratio:.2f}×")),
             format_quantity(one.size.flops)] for one in (found.teacher, *found.steps)]
    return Table(headings, rows, numbers=range(1, len(headings)), colours={0: "cyan"},
                 caption=f"{found.teacher.cost.machine}; {found.teacher.cost.threads} threads, "
                 f"{found.teacher.cost.dtype}; medians, in turn with the teacher, rows at their own lengths; by C "
                 "kernels: how many times faster than the teacher by its own parts, in the numbers that are stored")


def pairs_table(found: Compressed) -> Table:
    """Show whether neighbours on the front really score otherwise."""
    rows = [[f"{one.larger} – {one.smaller}", format_score(one.difference, signed=True),
             format_interval(one.low, one.high, signed=True), f"{one.p:.2g}", one.verdict] for one in found.pairs]
    return Table(("neighbours on the front", found.pairs[0].metric if found.pairs else "", "95 % interval", "p",
                  "the larger one is"), rows, numbers=(1, 2, 3), colours={0: "cyan"})


def smaller(size: int, whole: int) -> str:
    """Write a size, and how many times smaller it is than another."""
    return format_bytes(size) + (f" ({whole / size:.1f}×)" if size != whole else "")


def metrics_table(found: Compressed, split: str) -> Table:
    """Show all metrics of a split, with their differences from the teacher's."""
    headings = ["", "teacher", *(words for one in found.steps for words in (one.name, "difference"))]
    rows = [[metric.name, interval_text(metric),
             *(cell for one in found.steps for cell in metric_cells(one.splits[split].metrics[place]))]
            for place, metric in enumerate(found.teacher.splits[split].metrics)]
    return Table(headings, rows, numbers=range(1, len(headings)))


def metric_cells(one: MetricResult) -> tuple[str, str]:
    """Write a metric, and its difference from the teacher's with the paired interval."""
    if one.difference is None or one.difference_low is None or one.difference_high is None:
        return interval_text(one), ""
    between = format_interval(one.difference_low, one.difference_high, signed=True)
    return interval_text(one), f"{format_score(one.difference, signed=True)} ({between})"


Axis = Callable[[Measured], float]
AXES: dict[str, Axis] = {"disk": lambda one: one.size.disk, "time": lambda one: 1 / one.cost.speeds[0].ratio}
"""What a model is to have little of: bytes, and time as a share of the teacher's, which was taken in turn with it."""


def front(models: Sequence[Measured], axis: Axis) -> list[Measured]:
    """Return the models of which none other is as small and keeps as much, and one of both more."""
    def beaten(one: Measured) -> bool:
        return any(axis(other) <= axis(one) and other.kept.value >= one.kept.value
                   and (axis(other) < axis(one) or other.kept.value > one.kept.value) for other in models)

    return sorted((one for one in models if not beaten(one)), key=axis)


PICTURE_HEIGHT = 3.6


def draw_front(figure: Figure, models: Sequence[Measured], bound: float) -> None:
    """Draw what each model keeps against its size, and against its time; lines join those that none other beats."""
    labels = {"disk": "MB on disk", "time": "time of a row, % of the teacher's"}
    for axes, (name, label) in zip(figure.subplots(1, 2, sharey=True), labels.items(), strict=True):
        draw_axis(axes, models, name, 1e6 if name == "disk" else 0.01)
        axes.axhline(100 * bound, color=LINE, linewidth=1)
        axes.set_xlabel(label)
        axes.set_xlim(left=0)
        axes.grid(color=LINE, alpha=0.4)
    figure.axes[0].set_title("kept of the teacher's score, %", loc="left", fontsize=10, color=INK)


def draw_axis(axes: Axes, models: Sequence[Measured], name: str, unit: float) -> None:
    """Draw the points of one picture, those of the front in another colour."""
    axis = AXES[name]
    best = front(models, axis)
    for one in models:
        place, kept, colour = axis(one) / unit, one.kept, ACCENT if one in best else SECOND
        axes.errorbar([place], [100 * kept.value], yerr=[[100 * max(0.0, kept.value - kept.low)],
                                                        [100 * max(0.0, kept.high - kept.value)]],
                      fmt="o", color=colour, ecolor=SOFT, elinewidth=1)
        axes.annotate(one.name, (place, 100 * kept.value), xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.plot([axis(one) / unit for one in best], [100 * one.kept.value for one in best], color=ACCENT, linewidth=1)


def write_compression_report(found: Compressed) -> Path:
    """Write `report.html`, and return its path; without matplotlib it says how to get the picture."""
    models = (found.teacher, *found.steps)
    picture = draw_or_explain(
        lambda figure: draw_front(figure, models, found.settings.keep), PICTURE_HEIGHT,
        caption="Each dot is a model, upright lines are 95 % intervals over rows; the line joins the models of which "
        "none other is as small (as fast) and keeps as much. The level line is the bound.")
    verdicts = [f"{one.name}: {judge(one.kept, found.settings.keep).line}" for one in found.steps]
    return write_page(found.folder / REPORT_FILE, "compression.html", title=found.settings.name, found=found,
                      kept=kept_table(found), cost=cost_table(found), verdicts=verdicts, picture=picture,
                      pairs=pairs_table(found) if found.pairs else None,
                      metrics={name: metrics_table(found, name) for name in found.teacher.splits},
                      advice=[*found.notes(), *found.advice()])
