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
    from saucier.checkpoints.hub import find_finetuned_model
    from saucier.cost.workload import STATES
    from saucier.jobs.run.console import print_json, print_table
    from saucier.lens import anatomy as inspection
    from saucier.lens.anatomy import is_adapter
    from saucier.lens.subject import find_subject

    if is_adapter(find_finetuned_model(Path(what))):
        show_adapter(find_finetuned_model(Path(what)), as_json=as_json)
        return
    found = find_subject(what, words or [])
    training = found.recipe.training if found.recipe else None
    about = found.recipe.about if found.recipe else ""
    rows = min(training.micro_batch or training.batch, training.batch) if training else DEFAULT_BATCH
    tokens = length or (training.length if training else DEFAULT_LENGTH)
    described = inspection.describe_model(found.name, found.model, length=tokens, batch=batch or rows, about=about,
                                          states=STATES[training.optimizer.kind if training else "adamw"])
    if as_json:
        print_json(inspection.description_as_json(described))
    else:
        print_table(inspection.render_description(described))


def show_adapter(folder: Path, *, as_json: bool) -> None:
    """Tell what an adapter is, how large, and on which base."""
    from saucier.jobs.run.console import print_json
    from saucier.lens.anatomy import adapter_as_json, adapter_lines, describe_adapter

    shown = describe_adapter(folder)
    if as_json:
        print_json(adapter_as_json(shown))
    else:
        typer.echo("\n".join(adapter_lines(shown)))
