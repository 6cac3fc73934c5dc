"""`saucier convert`: a model in another layout or number format, or with an adapter merged."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson

Source = Annotated[str, typer.Argument(metavar="SRC", help="A model folder, an adapter, a run folder, or owner/name.")]
Target = Annotated[Path, typer.Argument(metavar="DST", help="A new folder.")]
To = Annotated[str, typer.Option("--to", help="own, published, a model_type, or auto: published where one fits.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16; stored keeps what the files have.")]
Head = Annotated[str, typer.Option(help="Read the folder as this published class.")]


def convert(source: Source, target: Target, *, to: To = "auto", dtype: Dtype = "stored", head: Head = "auto",
            as_json: AsJson = False) -> None:
    """Write a model into a new folder: in another layout or number format, or with an adapter merged."""
    from saucier.inspection.screen import put_json
    from saucier.runs import convert as work

    done = work.convert(source, target, layout=to, dtype=dtype, head=head)
    if as_json:
        put_json(asdict(done) | {"folder": str(done.folder)})
        return
    layout = "our own layout" if done.published is None and done.layout == "saucier" else f"layout {done.layout}"
    layout += f", {done.published}" if done.published else ""
    typer.echo(f"{done.parameters:,} parameters, {done.dtype}, {done.size:,} bytes, {layout} → {done.folder}")
    typer.echo(f"tokenizer: {', '.join(done.tokenizer) or 'none in the source'}")
