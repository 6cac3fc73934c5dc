"""`saucier diff`: what differs between two recipes or models, and only that."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson

Left = Annotated[str, typer.Argument(metavar="A", help="A recipe's name or file, a run folder, or a saved model.")]
Right = Annotated[str, typer.Argument(metavar="B", help="Another one.")]


def diff(left: Left, right: Right, *, as_json: AsJson = False) -> None:
    """Lay two recipes or models side by side, and show only what differs."""
    from saucier.jobs.run.console import print_json, print_table
    from saucier.lens import diff as inspection
    from saucier.lens.subject import comparable_values, find_subject

    found = list(inspection.differences(*comparable_values(find_subject(left), find_subject(right))))
    if as_json:
        print_json(inspection.diff_as_json(found))
    else:
        print_table(inspection.render_diff((left, right), found))
