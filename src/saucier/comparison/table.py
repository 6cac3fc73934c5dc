"""A comparison on the screen: a line for each arm, and a line for each pair."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from saucier.comparison.outcome import ArmResult, Outcome, PairResult
from saucier.inspection.units import duration, quantity

ARMS = ("", "parameters", "steps", "tokens", "FLOPs", "6·N·D", "time")
PAIRS = ("", "difference", "95 % interval", "p", "d_z", "verdict", "why")
COLOURS = {"better": "green", "worse": "red"}


def render(found: Outcome) -> RenderableType:
    """Lay a comparison out for a person."""
    parts: list[RenderableType] = [arms_table(found)]
    if found.pairs:
        parts += [Text(), pairs_table(found)]
    parts += [Text(note, style="yellow") for note in found.notes]
    return Group(*parts, Text(footnote(found), style="dim"))


def footnote(found: Outcome) -> str:
    """Say what was measured, and how."""
    units = f"{found.measure.name}, {found.measure.better} is better; {found.experiment.seeds} seeds"
    told = "; p over seeds and units, corrected for all pairs (Holm)" if found.pairs else ""
    return f"{units}, scored on {found.measure.unit}{told}"


def ranked(found: Outcome) -> list[ArmResult]:
    """Return the arms, the best first; in their own order where they cannot be compared."""
    if not found.pairs:
        return list(found.arms)
    return sorted(found.arms, key=lambda arm: arm.mean, reverse=found.measure.better == "higher")


def arms_table(found: Outcome) -> Table:
    """Show what each arm spent and how it scored."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in arm_headings(found):
        shown.add_column(heading, justify="right" if heading else "left", style="" if heading else "cyan", no_wrap=True)
    for arm in ranked(found):
        shown.add_row(*arm_row(found, arm))
    return shown


def arm_headings(found: Outcome) -> list[str]:
    """Name the columns of the arms."""
    own = [found.measure.name, "± seeds"]
    return [ARMS[0], *own, *([found.experiment.published.measure] if found.experiment.published else []), *ARMS[1:]]


def arm_row(found: Outcome, arm: ArmResult) -> list[str]:
    """Return the cells of one arm."""
    unit = "" if arm.measure == found.measure.name else f" {arm.measure}"
    own = [f"{score_text(found, arm.mean)}{unit}", "" if arm.spread is None else score_text(found, arm.spread)]
    published = ["" if arm.published is None else f"{arm.published:g}"] if found.experiment.published else []
    return [arm.name, *own, *published, f"{arm.parameters:,}", f"{arm.steps:,}", quantity(arm.tokens),
            quantity(arm.flops), quantity(arm.six), duration(arm.seconds)]


def score_text(found: Outcome, value: float, *, signed: bool = False) -> str:
    """Write a score: a share as a percentage, all else with four digits."""
    sign = "+" if signed else ""
    text = f"{100 * value:{sign}.1f} %" if found.measure.name == "accuracy" else f"{value:{sign}.4f}"
    return text.replace("-", "−")


def pairs_table(found: Outcome) -> Table:
    """Show what may be said about each pair."""
    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(pair_headings(found)):
        shown.add_column(heading, justify="right" if 1 <= place <= 4 else "left", no_wrap=place < 6)
    for pair in found.pairs:
        name, *cells = pair_row(found, pair)
        shown.add_row(Text(name, style="cyan"), *cells[:4], Text(cells[4], style=COLOURS.get(pair.verdict, "yellow")),
                      *cells[5:])
    return shown


def pair_headings(found: Outcome) -> list[str]:
    """Name the columns of the pairs."""
    return [*PAIRS, "published"] if found.experiment.published else [*PAIRS]


def pair_row(found: Outcome, pair: PairResult) -> list[str]:
    """Return the cells of one pair."""
    low, high = (score_text(found, end, signed=True) for end in (pair.low, pair.high))
    published = [pair.published or ""] if found.experiment.published else []
    return [f"{pair.first} – {pair.second}", score_text(found, pair.difference, signed=True), f"{low} … {high}",
            f"{pair.p:.2g}", "" if pair.effect is None else f"{pair.effect:.1f}".replace("-", "−"),
            pair.verdict, pair.reason, *published]
