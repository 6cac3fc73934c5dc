"""The outcome of prompting on the screen: a line for each number of shots, the baselines beside."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from saucier.prompting.job import Outcome, Setting
from saucier.tasks.scores.table import interval_text, new_table, number


def render(found: Outcome) -> RenderableType:
    """Lay an outcome out for a person."""
    table = new_table("", "score", "95 % interval", "draws", "± draws", "")
    for one in found.settings:
        for place, score in enumerate(one.scores):
            table.add_row(f"{one.shots}-shot {score.name}", number(score.value), interval_text(score.low, score.high),
                          str(one.draws), "" if place or one.spread is None else number(one.spread),
                          "" if place else lost(one))
    for score in found.baselines:
        table.add_row(score.name, number(score.value),
                      "" if score.low == score.high else interval_text(score.low, score.high), "", "", "no model")
    return Group(Text(f"{found.task}: {found.questions:,} questions, {found.model}", style="dim"), Text(), table)


def lost(one: Setting) -> str:
    """Say what did not fit."""
    parts = [f"{one.dropped:,} examples did not fit"] if one.dropped else []
    return ", ".join([*parts, *([f"{one.cut:,} questions were cut"] if one.cut else [])])
