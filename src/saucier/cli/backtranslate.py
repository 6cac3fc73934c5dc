"""`saucier backtranslate`: pairs to learn from, made of texts of the target language by a reverse model."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import Run, new_file


def backtranslate(
    run: Run,
    files: Annotated[list[str], typer.Argument(
        metavar="FILE...", help="Texts of the target language: one a line, or a row of a table.")],
    *,
    out: Annotated[Path, typer.Option(
        "--out", metavar="FILE.tsv", callback=new_file, help="The pairs, as a new table.")],
    column: Annotated[str | None, typer.Option(help="The column of a table that holds the texts.")] = None,
    columns: Annotated[str, typer.Option(
        metavar="SOURCE,TARGET", help="What the columns of the pairs are called.")] = "source,target",
    beams: Annotated[int, typer.Option(min=1, help="Beams of the reverse model.")] = 5,
    temperature: Annotated[float, typer.Option(
        "--temperature", min=0, help="Draw sources at this temperature instead; 0 takes the likeliest.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest tokens only.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same sources.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many texts only.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="So many texts at a time.")] = 64,
    source_language: Annotated[str | None, typer.Option(help="Multilingual models: the language of the texts.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Multilingual models: the language to write.")] = None,
) -> None:
    """Let a model that translates backwards write a source for each text; `cook --synthetic` learns from the pairs."""
    from saucier.errors import InputError
    from saucier.jobs.run.language_pairs import read_direction
    from saucier.jobs.writing.batches import (
        back_translate,
        make_batch_writer,
        refuse_existing,
        source_texts,
        write_pairs_table,
    )
    from saucier.jobs.writing.writer import choose_decoding
    from saucier.opened import open_model

    names = tuple(name.strip() for name in columns.split(","))
    if len(names) != 2 or not all(names):
        raise InputError(f"{columns!r} is not two names", where="--columns", remedy="write source,target")
    refuse_existing(out)
    opened = open_model(run)
    decoding = choose_decoding(beams=1 if temperature else beams, temperature=temperature, top_k=top_k, seed=seed)
    way = read_direction(opened, source_language, target_language)
    made = back_translate(make_batch_writer(opened, way), list(source_texts(files, column)), decoding, limit=limit,
                          batch=batch)
    write_pairs_table(out, made, (names[0], names[1]))
    typer.echo(f"{made.words} → {out}")
