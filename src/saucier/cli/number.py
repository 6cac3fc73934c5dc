"""`saucier number`: what a number format makes of a value. Nothing is imported before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, print_found

Values = Annotated[list[str], typer.Argument(metavar="VALUE...", help="Numbers: 0.1, -1e-3, 1/3, inf, nan.")]


def number(values: Values, as_json: AsJson = False) -> None:
    """Show sign, exponent and fraction of a number in float32, bfloat16 and float16, and the rounding error."""
    from rich.console import Group

    from saucier.lens import number_formats as inspection

    given = [inspection.read_number(value) for value in values]
    print_found(lambda: [row for one in given for row in inspection.number_as_json(one)],
                lambda: Group(*map(inspection.render_number, given)), as_json=as_json)
