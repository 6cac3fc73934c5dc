"""`saucier plan`: the cost of a recipe before it is cooked."""

from __future__ import annotations

from typing import Annotated

import typer

What = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe's name or file.")]
Changes = Annotated[list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Changes to the recipe.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="How long to measure this machine.")]
NoCalibrate = Annotated[bool, typer.Option("--no-calibrate", help="Only count; nothing is run, and no time is given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan(what: What, changes: Changes = None, seconds: Seconds = 5.0, no_calibrate: NoCalibrate = False,
         as_json: AsJson = False) -> None:
    """Say what a recipe will cost on this machine: parameters, tokens, FLOPs, memory and time."""
    from saucier.inspection import plan as inspection
    from saucier.inspection.screen import put, put_json
    from saucier.recipes import recipe

    planned = inspection.make_plan(recipe(what, changes or []), seconds=None if no_calibrate else seconds)
    if as_json:
        put_json(inspection.as_json(planned))
    else:
        put(inspection.render(planned))
