"""`saucier finetune`: a labelled file and a model become a model for a task."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import Out

What = Annotated[str, typer.Argument(metavar="TASK", help="A kind of task, such as classification or "
                                     "translation; a file of settings; or a folder.")]
Words = Annotated[list[str] | None,
                  typer.Argument(metavar="[key.sub=value]...",
                                 help="Settings, such as training.epochs=5 or task.label=COLUMN.")]
Model = Annotated[str | None, typer.Option(
    "--model", metavar="MODEL", help="A folder, a run, or a hub id; or a recipe, to learn from nothing.")]
Data = Annotated[list[str] | None, typer.Option("--data", metavar="FILE...", help="Labelled rows to learn from.")]
HeldOut = Annotated[list[str] | None,
                    typer.Option("--held-out", metavar="FILE", help="To measure with; a tenth of the data without.")]
Test = Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="To measure with at the very end.")]


def finetune(what: What, words: Words = None, *, model: Model = None, data: Data = None, held_out: HeldOut = None,
             test: Test = None, out: Out = None) -> None:
    """Show what will be learned, train, score with intervals beside simple methods, and write predictions."""
    from saucier.jobs.finetuning.finetune import finetune as work
    from saucier.jobs.finetuning.predict import FINETUNING
    from saucier.jobs.finetuning.settings import read_finetuning_words
    from saucier.jobs.run.folder import default_folder

    files = {"train": data or (), "held_out": held_out or (), "test": test or ()}
    settings, folder = read_finetuning_words(what, words or (), model, files)
    work(settings, out or folder or default_folder(settings, FINETUNING))
