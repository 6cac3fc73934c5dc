"""`saucier doctor`: does a model obey the laws?"""

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, print_found


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a run, or a hub id.")],
    *,
    text: Annotated[list[str] | None, typer.Option(
        "--text", metavar="FILE", help="Text to hold the laws on; Python's documentation without it. Can be given "
        "again.")] = None,
    dtype: Annotated[str, typer.Option(
        help="float32, bfloat16, float16, float64; its tolerance goes with it.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    base: Base = None, as_json: AsJson = False,
) -> None:
    """Prove that a model gives a row the same numbers alone, batched, padded, cached, packed; and look at its parts.

    Exit code 1 where a law fails.
    """
    from saucier.diagnosis.doctor import diagnose, render_diagnosis

    found = diagnose(model, files=text or (), dtype=dtype, device=device, base=base)
    print_found(found.as_json, lambda: render_diagnosis(found), as_json=as_json)
    if not found.sound:
        raise typer.Exit(1)
