"""`saucier convert`: a model in another layout, number format or shape, or with an adapter merged."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder, print_found

SHAPE = "Another shape"
LONGEST = 2**24
"""Positions that there may be room for: a number with more digits is a slip of the hand."""


def convert(
    source: Annotated[str, typer.Argument(
        metavar="SRC", help="A model folder, an adapter, a run folder, or owner/name.")],
    target: Annotated[Path, typer.Argument(metavar="DST", callback=new_folder, help="A new folder.")],
    *,
    to: Annotated[str, typer.Option(
        "--to", help="own, published, a model_type, or auto: published where one fits.")] = "auto",
    dtype: Annotated[str, typer.Option(
        help="float32, bfloat16 or float16; stored keeps what the files have.")] = "stored",
    head: Annotated[str, typer.Option(help="Read the folder as this published class.")] = "auto",
    attention: Annotated[str | None, typer.Option(
        metavar="KIND", rich_help_panel=SHAPE, help="What a token sees: window:512 (neighbours; of an encoder makes a "
        "Longformer), blocks:64:3 (blocks of positions, of which some are drawn: a BigBird), or how it is weighed: "
        "features:256 (a Performer), mixtures:128 (a Linformer), hashes:64:4 (chunks and rounds of a "
        "Reformer).")] = None,
    tokens: Annotated[str | None, typer.Option(
        "--global", metavar="TOKENS", rich_help_panel=SHAPE,
        help="Beside a window: the tokens that see all and are seen by all where a batch names none: none, cls, "
        "question or choices.")] = None,
    positions: Annotated[int | None, typer.Option(
        "--positions", min=1, max=LONGEST, rich_help_panel=SHAPE,
        help="Tokens to have room for: the table of positions is tiled.")] = None,
    kv_heads: Annotated[int | None, typer.Option(
        "--kv-heads", min=1, rich_help_panel=SHAPE, help="Heads for keys and values, each the mean of a group; 1: "
        "multi-query.")] = None,
    layers: Annotated[str | None, typer.Option(
        "--layers", metavar="NUMBERS", rich_help_panel=SHAPE,
        help="The layers to have, from 0: 0,2,4 leaves some out, 0-5,0-5 stacks them.")] = None,
    decoder_layers: Annotated[str | None, typer.Option(
        "--decoder-layers", metavar="NUMBERS", rich_help_panel=SHAPE,
        help="The same for the decoder of a model with two stacks.")] = None,
    vocabulary: Annotated[list[str] | None, typer.Option(
        "--vocabulary", metavar="FILE", rich_help_panel=SHAPE,
        help="Keep the tokens that this text uses, special ones and single characters; the tokenizer too. Can be given "
        "again.")] = None,
    new_tokens: Annotated[str | None, typer.Option(
        "--new-tokens", metavar="COUNT:FILE", rich_help_panel=SHAPE,
        help="So many more tokens, those that save most in this text: 500:notes.txt. Each begins as the mean of the "
        "pieces that spelled it.")] = None,
    text: Annotated[list[str] | None, typer.Option(
        "--text", metavar="FILE", rich_help_panel=SHAPE, help="Compare the model with what it was on this text. Can be "
        "given again.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model into a new folder: in another layout, number format or shape, or with an adapter merged."""
    from saucier.adaptation.surgery.operations import OperationOptions
    from saucier.jobs import convert as work

    operations = OperationOptions(attention, tokens, positions=positions, kv_heads=kv_heads, layers=layers,
                                  decoder_layers=decoder_layers, vocabulary=tuple(vocabulary or ()),
                                  new_tokens=new_tokens)
    done = work.convert(source, target, layout=to, dtype=dtype, head=head, options=operations, texts=text or ())
    layout = "our own layout" if done.published is None and done.layout == "saucier" else f"layout {done.layout}"
    layout += f", {done.published}" if done.published else ""
    lines = [f"{done.parameters:,} parameters, {done.dtype}, {done.size:,} bytes, {layout} → {done.folder}",
             f"tokenizer: {', '.join(done.tokenizer) or 'none in the source'}",
             *(done.equivalence.lines() if done.equivalence else ())]
    print_found(lambda: asdict(done) | {"folder": str(done.folder)}, lambda: "\n".join(lines), as_json=as_json)
