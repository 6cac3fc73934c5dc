"""`saucier attention`: what attends to what in a model, and what that costs as texts grow."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saucier.cli.arguments import AsJson, new_file, print_found

if TYPE_CHECKING:
    from saucier.lens.attention_patterns import PatternText
    from saucier.lens.subject import Subject


def attention(
    what: Annotated[str, typer.Argument(metavar="MODEL", help="A recipe's name or file, a run, or a model's folder.")],
    words: Annotated[list[str] | None, typer.Argument(
        metavar="[key.sub=value]...", help="Changes to a recipe.")] = None,
    *,
    length: Annotated[int, typer.Option(min=1, max=2048, help="Tokens of the text that is drawn.")] = 64,
    layer: Annotated[int | None, typer.Option(min=0, help="One layer alone, from 0.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="One head alone, from 0.")] = None,
    global_tokens: Annotated[int, typer.Option(
        "--global", min=0, help="First tokens that are global, where a model has such.")] = 1,
    prefix: Annotated[int | None, typer.Option(
        min=0, help="First tokens that all may see, where a model has a prefix; a quarter without it.")] = None,
    training: Annotated[bool, typer.Option(
        "--training", help="As in training: random blocks are drawn, and passes that are measured go backwards "
        "too.")] = False,
    lengths: Annotated[str | None, typer.Option(
        metavar="N,N,...", help="Measure time and memory at these lengths.")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", callback=new_file, help="Draw into an SVG, PNG or PDF file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw which tokens see which in every layer and head, or measure what growing lengths cost.

    The picture is read off the built attention, with random weights; feed-forwards and vocabulary are left out.
    """
    from saucier.errors import InputError
    from saucier.lens.attention_patterns import PatternText
    from saucier.lens.subject import find_subject

    found = find_subject(what, words or [])
    if lengths is not None:
        measure_lengths(found, lengths, out, training=training, as_json=as_json)
        return
    for option, value in (("--global", global_tokens), ("--prefix", prefix or 0)):
        if value > length:
            raise InputError(f"{value} of {length} tokens", where=option,
                             remedy=f"give {length} or fewer, or a longer --length")
    shown = length // 4 if prefix is None else prefix
    draw_patterns(found, PatternText(length, global_tokens, shown), (layer, head), out, training=training,
                  as_json=as_json)


def draw_patterns(found: "Subject", text: "PatternText", which: tuple[int | None, int | None], out: Path | None, *,
                  training: bool, as_json: bool) -> None:
    """Draw patterns."""
    from saucier.lens.attention_patterns import (
        find_patterns,
        first_pruned_length,
        pattern_lines,
        save_patterns,
        select_patterns,
    )

    whole = find_patterns(found.model, text, training=training)
    every, beyond = select_patterns(whole, *which), first_pruned_length(found.model, whole)
    if beyond is not None and beyond >= text.length:
        typer.echo(f"the pattern begins beyond {beyond:,} tokens: give a longer --length", err=True)
    if out is not None:
        save_patterns(every, found.name, out)
    written = f"{out}: {len(every)} patterns of {text.length} tokens"
    print_found(lambda: [one.as_json() for one in every],
                lambda: "\n".join(pattern_lines(every)) if out is None else written, as_json=as_json)


def measure_lengths(found: "Subject", lengths: str, out: Path | None, *, training: bool, as_json: bool) -> None:
    """Measure growing lengths."""
    from saucier.lens.growth import fit_exponents, growth_table, measure_growth, read_lengths, save_growth

    requested = read_lengths(lengths)
    points = []
    for one in measure_growth(found.model, requested, training=training):
        typer.echo(f"{one.length:,} tokens: {one.seconds:.3f} s", err=True)
        points.append(one)
    if out is not None:
        save_growth(points, found.name, out)
    print_found(lambda: {"points": [asdict(one) for one in points], "exponents": fit_exponents(points)},
                lambda: growth_table(points), as_json=as_json)
    if len(points) < len(requested):
        typer.echo(f"longer than {points[-1].length:,} tokens would have taken too long", err=True)
