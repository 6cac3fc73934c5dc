"""Held-out loss against tokens, FLOPs and seconds: a line for each arm, a band over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from saucier.comparison.outcome import ArmResult
from saucier.comparison.trials import Done
from saucier.inspection.html import Html
from saucier.inspection.report_charts import INK, drawing
from saucier.inspection.report_run import METRICS, read_metrics
from saucier.tasks.metrics.statistics import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#c0503a", "#2f7f7b", "#7d6bb3", "#a8832a", "#5b8c3e", "#b2568a", "#4a7fb5", "#8a6f5c")
"""Colours that can be told apart on light and on dark paper; with more arms they come again."""
PANELS = ("tokens", "FLOPs", "seconds")
HEIGHT = 3.4


@dataclass(frozen=True, slots=True)
class Curve:
    """One arm's held-out loss. Shapes: P points, S seeds; steps, seconds [P]; losses [S, P]."""

    arm: ArmResult
    steps: Floats
    seconds: Floats
    losses: Floats

    def along(self, panel: str) -> Floats:
        """Return the horizontal places of the points in a panel."""
        match panel:
            case "tokens":
                return self.steps * (self.arm.tokens / self.arm.steps)
            case "FLOPs":
                return self.steps * (self.arm.flops / self.arm.steps)
            case _:
                return self.seconds


def curve(arm: ArmResult, folders: Sequence[Path]) -> Curve:
    """Read an arm's curve from its runs: the steps at which all of them were evaluated."""
    runs = [read_metrics(folder / METRICS) for folder in folders]
    looks = [{line["step"]: line["evaluation"]["loss"] for line in run if "evaluation" in line} for run in runs]
    common = sorted(set.intersection(*(set(look) for look in looks)))
    timed = [[(line["step"], line["seconds"]) for line in run if "seconds" in line] for run in runs]
    seconds = [np.interp(common, *np.array(pairs).T) for pairs in timed if pairs]
    return Curve(arm, np.array(common, dtype=float), np.mean(seconds, axis=0) if seconds else np.zeros(len(common)),
                 np.array([[look[step] for step in common] for look in looks]))


def curves_of(arms: Sequence[ArmResult], done: Sequence[Done]) -> list[Curve]:
    """Read the curves of all arms."""
    return [curve(arm, [one.trial.folder for one in done if one.trial.arm == arm.name]) for arm in arms]


def curves_picture(curves: Sequence[Curve]) -> Html:
    """Draw the three panels. Errors: `InputError` where matplotlib is missing."""
    def draw(figure: Figure) -> None:
        for axes, panel in zip(figure.subplots(1, 3, sharey=True, gridspec_kw={"wspace": 0.08}), PANELS, strict=True):
            _draw_panel(axes, curves, panel)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.1, -0.06 - 0.05 * (len(labels) // 4)),
                      ncols=4, frameon=False)

    return drawing(draw, HEIGHT)


def _draw_panel(axes: Axes, curves: Sequence[Curve], panel: str) -> None:
    from matplotlib.ticker import EngFormatter

    for number, one in enumerate(curves):
        colour, places, mean = PALETTE[number % len(PALETTE)], one.along(panel), one.losses.mean(axis=0)
        axes.plot(places, mean, color=colour, linewidth=1.5, label=one.arm.name)
        if len(one.losses) > 1:
            axes.fill_between(places, one.losses.min(axis=0), one.losses.max(axis=0), color=colour, alpha=0.18,
                              linewidth=0)
    axes.set_title(f"against {panel}", loc="left", fontsize=9.5, color=INK)
    axes.xaxis.set_major_formatter(EngFormatter(sep="\N{THIN SPACE}"))
    axes.grid(axis="y")
