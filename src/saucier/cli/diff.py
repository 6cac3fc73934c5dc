"""`saucier diff`: what differs between two recipes or models, and only that."""

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, print_found


def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A recipe's name or file, a run folder, or a saved model.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Lay two recipes or models side by side, and show only what differs."""
    from saucier.lens.diff import differences, render_diff
    from saucier.lens.subject import comparable_values, find_subject

    found = list(differences(*comparable_values(find_subject(left), find_subject(right))))
    print_found(lambda: [one.as_json() for one in found], lambda: render_diff((left, right), found), as_json=as_json)
