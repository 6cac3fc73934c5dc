"""`saucier tokenizer`: train one on text, or see how one splits a text."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder, print_found

if TYPE_CHECKING:
    from rich.text import Text

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None,
                  help="Train a tokenizer, or see how one splits a text.")

COLOURS = ("on #28405e", "on #5a3b2a", "on #2f4f3a", "on #4d3358")
"""Backgrounds of neighbouring tokens."""


@app.callback()
def options(context: typer.Context) -> None:
    """Train a tokenizer, or see how one splits a text."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def train(
    files: Annotated[list[str] | None, typer.Argument(
        metavar="[FILE]...", help="Text to learn from; Python's own documentation without it.")] = None,
    *,
    out: Annotated[Path, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="A new folder for tokenizer.json.")] = Path("tokenizer"),
    kind: Annotated[str, typer.Option(help="byte_bpe, bpe, wordpiece, unigram, bytes or characters.")] = "byte_bpe",
    vocab: Annotated[int, typer.Option(min=1, help="Size of the vocabulary, special tokens included.")] = 8000,
) -> None:
    """Train a tokenizer and save it as transformers reads it."""
    from saucier.errors import InputError
    from saucier.text.tokenizer.training import train_tokenizer_on_files

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise InputError("is not empty", where=str(out), remedy="give a new folder with --out")
    found = train_tokenizer_on_files(kind, vocab, files or [])
    found.save(out)
    typer.echo(f"{kind}, {found.vocab_size:,} tokens → {out}")


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder with tokenizer.json.")],
    texts: Annotated[list[str] | None, typer.Argument(
        metavar="[TEXT]...", help="The text to split; standard input without it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a tokenizer splits a text: its tokens, their ids, and bytes a token."""
    from rich.console import Group

    from saucier.opened import run_folder_of
    from saucier.text.tokenizer.tokenizer import load_tokenizer
    from saucier.text.tokenizer.training import split_text

    found = load_tokenizer(run_folder_of(folder))
    text = " ".join(texts) if texts else sys.stdin.read()
    split = split_text(found, text)
    ids, tokens = [number for number, _ in split], [token for _, token in split]
    density = len(text.encode()) / max(1, len(split))
    summary = f"{len(split)} tokens, {density:.2f} bytes a token, vocabulary of {found.vocab_size:,}"
    print_found(lambda: {"text": text, "tokens": tokens, "ids": ids},
                lambda: Group(color_tokens(tokens), summary, " ".join(map(str, ids))), as_json=as_json)


def color_tokens(tokens: list[str]) -> "Text":
    """Show tokens one after another; without colours a bar is between them."""
    from rich.text import Text

    shown = Text()
    for number, token in enumerate(tokens):
        shown.append("|" if number and not sys.stdout.isatty() else "")
        shown.append(token, style=COLOURS[number % len(COLOURS)])
    return shown
