"""`saucier show`: the anatomy of a model. Nothing is imported before it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Words, print_found

DEFAULT_LENGTH, DEFAULT_BATCH = 512, 8
"""Used for a saved model, which has no recipe."""


def show(
    what: Annotated[str, typer.Argument(
        metavar="NAME|FILE", help="A recipe's name or file, a run folder, or a saved model.")],
    words: Words = None,
    *,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens in a row; the recipe's length by default.")] = None,
    batch: Annotated[int | None, typer.Option(
        min=1, help="Rows in training; the recipe's (micro-)batch by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a model as a tree: parts, shapes, parameters, FLOPs a token, and the memory it needs."""
    from saucier.checkpoints.hub import find_finetuned_model
    from saucier.cost.workload import STATES
    from saucier.lens.anatomy import adapter_lines, describe_adapter, describe_model, is_adapter, render_description
    from saucier.lens.subject import find_subject

    folder = find_finetuned_model(Path(what))
    if is_adapter(folder):
        adapter = describe_adapter(folder)
        print_found(adapter.as_json, lambda: "\n".join(adapter_lines(adapter)), as_json=as_json)
        return
    found = find_subject(what, words or [])
    training = found.recipe.training if found.recipe else None
    rows = min(training.micro_batch or training.batch, training.batch) if training else DEFAULT_BATCH
    described = describe_model(
        found.name, found.model, length=length or (training.length if training else DEFAULT_LENGTH),
        batch=batch or rows, about=found.recipe.about if found.recipe else "",
        states=STATES[training.optimizer.kind if training else "adamw"])
    print_found(described.as_json, lambda: render_description(described), as_json=as_json)
