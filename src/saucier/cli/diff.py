"""`saucier diff`: what differs between two recipes or models, and only that."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson

Left = Annotated[str, typer.Argument(metavar="A", help="A recipe's name or file, a run folder, or a saved model.")]
Right = Annotated[str, typer.Argument(metavar="B", help="Another one.")]


def diff(left: Left, right: Right, *, as_json: AsJson = False) -> None:
    """Lay two recipes or models side by side, and show only what differs."""
    from saucier.inspection import diff as inspection
    from saucier.inspection.screen import put, put_json
    from saucier.inspection.subject import comparable, subject

    found = list(inspection.differences(*comparable(subject(left), subject(right))))
    if as_json:
        put_json(inspection.as_json(found))
    else:
        put(inspection.render((left, right), found))
