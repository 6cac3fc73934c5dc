"""`saucier predict`: a model that was fine-tuned for a task answers."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, new_file


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder of a fine-tuning, or a model for a task.")],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="Rows to answer for.")] = None,
    *,
    texts: Annotated[list[str] | None, typer.Option(
        "--text", metavar="TEXT", help="A text to answer for; `FIRST ||| SECOND` for a pair. Can be given "
        "again.")] = None,
    base: Base = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", callback=new_file, help="Write JSON lines here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer for the rows of files, or for texts: one line each, JSON with --json or into a file."""
    from saucier.errors import InputError
    from saucier.jobs.finetuning.predict import predict_answers
    from saucier.jobs.finetuning.results import format_answer, prediction_row
    from saucier.tasks.prediction_files import as_line, write_predictions

    if not files and not texts:
        raise InputError("nothing to answer for", where="command line", remedy="give a FILE, or --text TEXT")
    if out is not None and out.exists():
        raise InputError("is there already", where=str(out), remedy="give another name with --out")
    found = predict_answers(model, files or (), texts or (), base=base)
    answered = list(zip(found.examples, found.answers, strict=True))
    if found.cut:
        typer.echo(f"{found.cut:,} rows were too long and are cut", err=True)
    for what, count in found.counted.items():
        typer.echo(f"{count:,} {what}", err=True)
    if out is not None:
        write_predictions(out, (prediction_row(found.task, *one) for one in answered))
        typer.echo(f"{len(answered):,} predictions in {out}")
        return
    for example, answer in answered:
        typer.echo(as_line(prediction_row(found.task, example, answer)) if as_json
                   else format_answer(found.task, example, answer))
