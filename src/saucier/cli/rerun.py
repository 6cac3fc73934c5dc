"""`saucier rerun`: repeat a run, and say whether the result is equal."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder, print_found


def rerun(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="Where to; RUN-again by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat a run from its passport. Exit code 0 when both results are equal to the last bit, 1 when they differ."""
    from saucier.jobs.pretraining.cook import rerun as work

    found = work(run, out, quiet=as_json)
    verdict = "the results are equal" if found.equal else "the results differ"
    print_found(lambda: {"equal": found.equal, "first": found.first.model_dump(mode="json"),
                         "second": found.second.model_dump(mode="json"), "differences": list(found.reasons())},
                lambda: "\n".join(["", *found.lines(), *found.reasons(), verdict]), as_json=as_json)
    if not found.equal:
        raise typer.Exit(1)
