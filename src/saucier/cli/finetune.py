"""`saucier finetune`: a labelled file and a model become a model for a task."""

from typing import Annotated

import typer

from saucier.cli.arguments import Out


def finetune(
    what: Annotated[str, typer.Argument(
        metavar="TASK", help="A kind of task, such as classification or translation; a file of settings; or a "
        "folder.")],
    words: Annotated[list[str] | None, typer.Argument(
        metavar="[key.sub=value]...", help="Settings, such as training.epochs=5 or task.label=COLUMN.")] = None,
    *,
    model: Annotated[str | None, typer.Option(
        "--model", metavar="MODEL", help="A folder, a run, or a hub id; or a recipe, to learn from nothing.")] = None,
    data: Annotated[list[str] | None, typer.Option(
        "--data", metavar="FILE...", help="Labelled rows to learn from.")] = None,
    held_out: Annotated[list[str] | None, typer.Option(
        "--held-out", metavar="FILE", help="To measure with; a tenth of the data without.")] = None,
    test: Annotated[list[str] | None, typer.Option(
        "--test", metavar="FILE", help="To measure with at the very end.")] = None,
    out: Out = None,
    search: Annotated[int | None, typer.Option(
        "--search", metavar="N", min=2, help="Search for rate, epochs, batch and pooling first: N combinations."
    )] = None,
    find_rate: Annotated[bool, typer.Option(
        "--find-rate", help="Find the learning rate first, by a range test.")] = False,
) -> None:
    """Show what will be learned, train, score with intervals beside simple methods, and write predictions."""
    from saucier.jobs.finetuning.entry import run_finetuning

    files = {"train": data or (), "held_out": held_out or (), "test": test or ()}
    run_finetuning(what, words or (), model=model, files=files, out=out, search=search, find_rate=find_rate)
