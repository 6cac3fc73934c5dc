"""`saucier merge`: an adapter added to its base model, with a comparison of the two on text."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, new_folder, print_found


def merge(
    adapter: Annotated[Path, typer.Argument(metavar="ADAPTER", help="The folder of a LoRA adapter, or a tuned run.")],
    out: Annotated[Path, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="A new folder for the merged model.")],
    *,
    base: Base = None,
    text: Annotated[Path | None, typer.Option(help="Text to compare on; a few sentences of our own without.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add an adapter to its base model's weights, compare the outputs of both, and write the merged model."""
    from saucier.jobs.merge import merge_adapter as work

    done = work(adapter, out, base=base, text=text)
    without = "" if done.effect is None else f"; without the adapter it is {done.effect:.2g}"
    lines = [f"{done.texts} texts, {done.tokens:,} tokens, apart and merged: the largest difference of an output is "
               f"{done.difference:.2g}, of outputs up to {done.size:.2g}{without}"]
    if done.agreeing is not None:
        lines.append(f"the likeliest token is the same at {done.agreeing:.2%} of the places")
    lines.append(f"merged, {done.pairs} maps changed, layout {done.layout} → {done.folder}")
    print_found(lambda: asdict(done) | {"folder": str(done.folder)}, lambda: "\n".join(lines), as_json=as_json)
