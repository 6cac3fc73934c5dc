"""`saucier attention-map`: where a model looks in the source while it writes."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Run, new_file, print_found


def attention_map(
    run: Run,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The text that the encoder reads.")],
    target: Annotated[str | None, typer.Argument(
        metavar="[TARGET]", help="The text to be written; the model's own translation without it.")] = None,
    *,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", callback=new_file, help="Draw it into an SVG, PNG or PDF file.")] = None,
    layer: Annotated[int, typer.Option(
        help="Which attention to the encoder, from 0; negative ones count from the last.")] = -1,
    head: Annotated[int | None, typer.Option(min=0, help="One head alone; the mean of all without it.")] = None,
    source_language: Annotated[str | None, typer.Option(
        help="Multilingual models: the language of the source.")] = None,
    target_language: Annotated[str | None, typer.Option(
        help="Multilingual models: the language of the target.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw which tokens of a source a model looks at while it writes each token of a target."""
    from saucier.jobs.run.language_pairs import read_direction
    from saucier.jobs.writing.writer import attention_map as mapped
    from saucier.lens import heat_map
    from saucier.opened import open_model

    opened = open_model(run, dtype="float32")
    way = read_direction(opened, source_language, target_language)
    found = mapped(opened, source, target, layer=layer, head=head, way=way)
    if out is not None:
        heat_map.save_picture(found, out)
    written = f"{out}: {len(found.rows)} × {len(found.columns)}"
    print_found(lambda: {"rows": found.rows, "columns": found.columns, "weights": found.weights},
                lambda: heat_map.render_heat_map(found) if out is None else written, as_json=as_json)
