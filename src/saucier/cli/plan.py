"""`saucier plan`: the cost of a recipe before it is cooked."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, DataFiles, HeldOutFiles, NoCalibrate, What, Words, print_found


def plan(
    what: What, words: Words = None,
    *,
    data: DataFiles = None, held_out: HeldOutFiles = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure this machine.")] = 5.0,
    no_calibrate: NoCalibrate = False, as_json: AsJson = False,
) -> None:
    """Say what a recipe will cost on this machine: parameters, tokens, FLOPs, memory and time."""
    from saucier.cli.arguments import read_recipe_words
    from saucier.cost.planning import make_plan, render_plan

    if (Path(what) / "config.json").is_file():
        from saucier.errors import InputError

        raise InputError("a saved model has no training to plan", where=what,
                         remedy=f"saucier show {what} says what it costs to run")
    recipe, _ = read_recipe_words(what, words, data, held_out)
    planned = make_plan(recipe, seconds=None if no_calibrate else seconds)
    print_found(planned.as_json, lambda: render_plan(planned), as_json=as_json)
