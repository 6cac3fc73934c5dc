"""What came of a compression: what each model kept and costs, the verdict on the bound, the front, the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from rich.console import Group, RenderableType
from rich.text import Text

from saucier.errors import InputError
from saucier.files import read_object
from saucier.jobs.compression.measurement import Measured, MetricResult, Share
from saucier.jobs.compression.settings import COMPRESSION_FILE, Compression, read_compression
from saucier.jobs.score import format_interval, format_score
from saucier.plain import format_bytes, format_quantity
from saucier.report.page import ACCENT, INK, LINE, REPORT_FILE, SECOND, SOFT, draw_or_explain, write_page
from saucier.result import Result
from saucier.table import Table

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


@dataclass(frozen=True, slots=True)
class Compressed(Result):
    """A finished compression: the models, what they keep, and what they cost."""

    folder: Path
    settings: Compression
    teacher: Measured
    """The model that it began with."""
    steps: tuple[Measured, ...]
    """The steps that were made; the last one may break the bound."""

    @property
    def kept(self) -> tuple[Measured, ...]:
        """The steps that keep what they must."""
        return tuple(one for one in self.steps if judge(one.kept, self.settings.keep).holds)

    @property
    def model(self) -> Path | None:
        """The folder of the last model that keeps what it must; None where none does."""
        return self.folder / "steps" / self.kept[-1].name / "model" if self.kept else None

    @property
    def stopped(self) -> bool:
        """Whether a step broke the bound."""
        return len(self.kept) < len(self.steps)

    @property
    def failed(self) -> bool:
        """Whether not one step keeps what it must."""
        return not self.kept

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON holds them."""
        return {"model": None if self.model is None else str(self.model.relative_to(self.folder)),
                "stopped": self.stopped, "keep": self.settings.keep,
                "teacher": self.teacher.model_dump(mode="json"),
                "steps": [one.model_dump(mode="json") for one in self.steps],
                "front": {name: [one.name for one in front((self.teacher, *self.steps), axis)]
                          for name, axis in AXES.items() if name == "disk"},
                "cost": {name: [one.name for one in front((self.teacher, *self.steps), axis)]
                         for name, axis in AXES.items() if name != "disk"}}

    def view(self) -> RenderableType:
        """Return the tables of what is kept and what it costs, and what to use."""
        return Group(kept_table(self), Text(), cost_table(self), Text(),
                     *(Text(line, style="yellow") for line in self.notes()),
                     *(Text(line, style="green" if self.kept else "red") for line in self.advice()))

    def notes(self) -> list[str]:
        """Return what a reader must know."""
        return list(dict.fromkeys(f"{one.name}: {note}" for one in self.steps for note in one.notes))

    def advice(self) -> Iterator[str]:
        """Yield where the chain ended, and how its model is used."""
        if self.stopped:
            broken = self.steps[len(self.kept)].name
            left = len(self.settings.steps) - len(self.steps)
            yield (f"step {broken} breaks the bound: its folder is kept, and the chain stops there"
                   + (f" ({left} more steps were not made)" if left else ""))
        if self.model is None:
            yield "no step keeps what it must: use the model that you have, a lower keep, or a gentler chain"
        else:
            yield f"use it: saucier predict {self.model} FILE"


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
    places = [folder / "steps" / f"{number}-{step.kind}" for number, step in enumerate(settings.steps, start=1)]
    return Compressed(folder, settings, read_measured(folder / TEACHER),
                      tuple(read_measured(one) for one in places if (one / MEASURED).is_file()))


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
                *(words for batch in batches for words in (f"ms, batch {batch}", "faster")), "FLOPs a row"]
    rows = [[one.name, format_quantity(one.size.parameters), smaller(one.size.disk, found.teacher.size.disk),
             format_bytes(one.size.weights), "" if one.cost.peak is None else format_bytes(one.cost.peak),
             *(cell for speed in one.cost.speeds for cell in (
                 f"{speed.milliseconds:.3g}", "" if one is found.teacher else f"{speed.ratio:.2f}×")),
             format_quantity(one.size.flops)] for one in (found.teacher, *found.steps)]
    return Table(headings, rows, numbers=range(1, len(headings)), colours={0: "cyan"},
                 caption=f"{found.teacher.cost.machine}; {found.teacher.cost.threads} threads, "
                 f"{found.teacher.cost.dtype}; medians, in turn with the teacher, rows at their own lengths")


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
AXES: dict[str, Axis] = {"disk": lambda one: one.size.disk, "milliseconds": lambda one: one.cost.speeds[0].milliseconds}
"""What a model is to have little of."""


def front(models: Sequence[Measured], axis: Axis) -> list[Measured]:
    """Return the models of which none other is as small and keeps as much, and one of both more."""
    def beaten(one: Measured) -> bool:
        return any(axis(other) <= axis(one) and other.kept.value >= one.kept.value
                   and (axis(other) < axis(one) or other.kept.value > one.kept.value) for other in models)

    return sorted((one for one in models if not beaten(one)), key=axis)


PICTURE_HEIGHT = 3.6


def draw_front(figure: Figure, models: Sequence[Measured], bound: float) -> None:
    """Draw what each model keeps against its size, and against its time; lines join those that none other beats."""
    for axes, (name, label) in zip(figure.subplots(1, 2, sharey=True),
                                   (("disk", "MB on disk"), ("milliseconds", "ms a row, batch 1")), strict=True):
        draw_axis(axes, models, name, 1e6 if name == "disk" else 1.0)
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
                      metrics={name: metrics_table(found, name) for name in found.teacher.splits},
                      advice=[*found.notes(), *found.advice()])
