"""`saucier number`: what a number format makes of a value. Nothing is imported before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

Values = Annotated[list[str], typer.Argument(metavar="VALUE...", help="Numbers: 0.1, -1e-3, 1/3, inf, nan.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def number(values: Values, as_json: AsJson = False) -> None:
    """Show sign, exponent and fraction of a number in float32, bfloat16 and float16, and the rounding error."""
    from saucier.jobs.run.console import print_json, print_table
    from saucier.lens import number_formats as inspection

    given = [inspection.read_number(value) for value in values]
    if as_json:
        print_json([row for one in given for row in inspection.number_as_json(one)])
        return
    for one in given:
        print_table(inspection.render_number(one))
