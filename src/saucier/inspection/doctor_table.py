"""A diagnosis on the screen: a line for each law and check."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from saucier.inspection.doctor import Diagnosis

COLOURS = {"holds": "green", "fails": "bold red", "does not apply": "dim"}


def render(found: Diagnosis) -> RenderableType:
    """Lay a diagnosis out for a person."""
    head = Text(f"{found.model}: {found.parameters:,} parameters in {found.dtype}; rows of "
                f"{', '.join(map(str, found.lengths))} tokens ({found.text})", style="dim")
    return Group(head, Text(), findings_table(found), Text(), conclusion(found))


def findings_table(found: Diagnosis) -> Table:
    """Show every finding; differences are beside 1 + the size of the number."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("law", "largest difference", "tolerance", "verdict", ""):
        table.add_column(heading, justify="right" if heading in ("largest difference", "tolerance") else "left",
                         no_wrap=heading != "")
    for one in found.findings:
        table.add_row(one.name, amount(one.difference), amount(one.tolerance),
                      Text(one.verdict, style=COLOURS[one.verdict]), one.why)
    return table


def amount(value: float | None) -> str:
    """Write a difference."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}".replace("-0", "-")


def conclusion(found: Diagnosis) -> Text:
    """Say what it comes to."""
    failed = [one.name for one in found.findings if one.verdict == "fails"]
    held = sum(one.verdict == "holds" for one in found.findings)
    if failed:
        return Text(f"{len(failed)} of {held + len(failed)} fail: {'; '.join(failed)}", style=COLOURS["fails"])
    return Text(f"sound: all {held} that apply hold", style=COLOURS["holds"])
