"""`saucier show`: the anatomy of a model. Nothing is imported before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Words

What = Annotated[str, typer.Argument(
    metavar="NAME|FILE", help="A recipe's name or file, a run folder, or a saved model.")]
Length = Annotated[int | None, typer.Option(min=1, help="Tokens in a row; the recipe's length by default.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Rows in training; the recipe's (micro-)batch by default.")]

DEFAULT_LENGTH, DEFAULT_BATCH = 512, 8
"""Used for a saved model, which has no recipe."""


def show(what: What, words: Words = None, *, length: Length = None, batch: Batch = None,
         as_json: AsJson = False) -> None:
    """Draw a model as a tree: parts, shapes, parameters, FLOPs a token, and the memory it needs."""
    from saucier.hub import finished_model
    from saucier.inspection import show as inspection
    from saucier.inspection.adapter import is_adapter
    from saucier.inspection.costs import STATES
    from saucier.inspection.screen import put, put_json
    from saucier.inspection.subject import subject

    if is_adapter(finished_model(Path(what))):
        show_adapter(finished_model(Path(what)), as_json=as_json)
        return
    found = subject(what, words or [])
    training = found.recipe.training if found.recipe else None
    about = found.recipe.about if found.recipe else ""
    rows = min(training.micro_batch or training.batch, training.batch) if training else DEFAULT_BATCH
    tokens = length or (training.length if training else DEFAULT_LENGTH)
    described = inspection.describe(found.name, found.model, length=tokens, batch=batch or rows, about=about,
                                    states=STATES[training.optimizer.kind if training else "adamw"])
    if as_json:
        put_json(inspection.as_json(described))
    else:
        put(inspection.render(described))


def show_adapter(folder: Path, *, as_json: bool) -> None:
    """Tell what an adapter is, how large, and on which base."""
    from saucier.inspection.adapter import described, lines, plain
    from saucier.inspection.screen import put_json

    shown = described(folder)
    if as_json:
        put_json(plain(shown))
    else:
        typer.echo("\n".join(lines(shown)))
