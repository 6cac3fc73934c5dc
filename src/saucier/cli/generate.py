"""`saucier generate`: let a model write, to the terminal while it writes."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saucier.cli.arguments import AsJson, Base, Run, new_file, print_found

if TYPE_CHECKING:
    from saucier.jobs.run.language_pairs import Direction
    from saucier.jobs.writing.batches import WrittenTexts
    from saucier.opened import OpenModel


def generate(
    run: Run,
    prompt: Annotated[list[str] | None, typer.Argument(
        metavar="[PROMPT]", help="The text to continue or to translate; standard input without it. `--` before it "
        "where it starts with a dash.")] = None,
    *,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="The most tokens to write.")] = 200,
    temperature: Annotated[float, typer.Option(min=0, help="0 takes the likeliest token every time.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest tokens only.")] = None,
    top_p: Annotated[float | None, typer.Option(
        max=1, help="Draw from the likeliest tokens that hold this probability.")] = None,
    beams: Annotated[int, typer.Option(
        min=1, help="Beam search with so many hypotheses; nothing is drawn at random.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Above 0 beams favour long texts.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(
        "--repetition-penalty", min=0, help="Above 1 tokens that are there already are less likely.")] = 1.0,
    no_repeat_ngram: Annotated[int, typer.Option("--no-repeat-ngram", min=0, help="No n-gram of this size twice.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(
        "--stop", metavar="TEXT", help="End behind this text. Can be given again.")] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="How many texts to write.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed draws the same text.")] = None,
    strategy: Annotated[str | None, typer.Option(
        metavar="'KIND [name=value]...'", help="Not from left to right: `gibbs` or `metropolis_hastings` fill in the "
        "mask tokens of a text, as in 'gibbs steps=200'; `mask_predict` sets how a model that writes whole texts does "
        "so.")] = None,
    masks: Annotated[int, typer.Option(min=0, help="With such a strategy: so many mask tokens behind the text.")] = 0,
    source_language: Annotated[str | None, typer.Option(
        help="Multilingual models: the language of the source, as de.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Multilingual models: the language to write.")] = None,
    file: Annotated[list[str] | None, typer.Option(
        "--file", metavar="FILE", help="Write for each line of a text file, or each row of a table. Can be given "
        "again.")] = None,
    column: Annotated[str | None, typer.Option(
        help="With --file: the column of a table that holds the sources.")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="FILE", callback=new_file, help="With --file: one line for each source goes here.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="With --file: so many sources at a time.")] = 32,
    compiled: Annotated[bool, typer.Option(
        "--compile", help="Compile the model first: slow to start, then faster.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")] = "auto",
    base: Base = None, as_json: AsJson = False,
) -> None:
    """Let a model write on from a prompt, or translate one. Text appears while it is written."""
    from saucier.config import LengthHead
    from saucier.generation.decoding import ChainStrategy
    from saucier.jobs.run.language_pairs import read_direction
    from saucier.jobs.writing.writer import choose_decoding, read_strategy
    from saucier.opened import open_model

    refuse_unused_options({"--out": out, "--column": column}, file, strategy)
    opened = open_model(run, dtype=dtype, device=device, base=base)
    refuse_steps(opened, {"--beams": beams > 1, "--repetition-penalty": repetition_penalty != 1.0,
                          "--no-repeat-ngram": no_repeat_ngram > 0, "--stop": bool(stop)})
    other = None if strategy is None else read_strategy(strategy, opened.tokenizer)
    whole = isinstance(opened.model.config.head, LengthHead)
    decoding = choose_decoding(beams=beams, length_penalty=length_penalty, temperature=temperature, top_k=top_k,
                               top_p=top_p, seed=seed)
    options = decoding | {"max_new_tokens": tokens, "num_return_sequences": samples, "stop_strings": tuple(stop or ()),
                          "repetition_penalty": repetition_penalty, "no_repeat_ngram_size": no_repeat_ngram,
                          "strategy": other if whole else None}
    way = read_direction(opened, source_language, target_language)
    if file:
        from saucier.jobs.writing.batches import make_batch_writer, refuse_existing, source_texts, write_in_batches

        if out is not None:
            refuse_existing(out)
        writer, sources = make_batch_writer(opened, way), list(source_texts(file, column))
        print_texts(write_in_batches(writer, sources, options, batch=batch), out, as_json=as_json)
        return
    text = " ".join(prompt) if prompt else "" if masks else sys.stdin.read().removesuffix("\n")
    if isinstance(other, ChainStrategy):
        drawn = {"temperature": temperature or None, "top_k": top_k, "top_p": top_p, "seed": seed}
        fill_to_screen(opened, text, masks, {"strategy": other, "num_return_sequences": samples, **drawn},
                       as_json=as_json)
    else:
        write_to_screen(opened, text, {**options, "compile": compiled}, way, as_json=as_json)


def refuse_unused_options(for_files: Mapping[str, object], files: Sequence[str] | None, strategy: str | None) -> None:
    """Raise `InputError` for options that would not be read."""
    from saucier.errors import InputError

    idle = [name for name, value in for_files.items() if value is not None]
    if idle and not files:
        raise InputError("is read with --file alone", where=idle[0], remedy="leave it out, or name a file")
    if files and strategy is not None and not strategy.startswith("mask_predict"):
        raise InputError("a file's texts are continued or translated, and not filled in", where="--strategy",
                         remedy="leave it out, or give one text")


def refuse_steps(opened: "OpenModel", given: Mapping[str, bool]) -> None:
    """Raise `InputError` for what is done token by token, where a model writes a text whole."""
    from saucier.config import LengthHead
    from saucier.errors import InputError

    idle = [name for name, was_given in given.items() if was_given]
    if idle and isinstance(opened.model.config.head, LengthHead):
        raise InputError("this model writes a text whole, not token by token", where=idle[0],
                         remedy="leave it out; --strategy 'mask_predict iterations=20' takes more time")


def print_texts(written: "WrittenTexts", out: Path | None, *, as_json: bool) -> None:
    """Write the texts of all sources into a file, or to the screen; say what was cut."""
    if out is not None:
        from saucier.files import write_text

        write_text(out, written.lines)
    if as_json:
        from saucier.jobs.run.console import print_json

        print_json({"texts": written.texts, "cut": written.cut})
    elif out is None:
        typer.echo(written.lines, nl=False)
    if written.cut:
        typer.echo(f"{written.cut:,} of {len(written.texts):,} sources were longer than the model takes, and cut",
                   err=True)


def write_to_screen(opened: "OpenModel", text: str, options: Mapping[str, Any], way: "Direction | None", *,
                    as_json: bool) -> None:
    """Write on from a text, or translate it; one text that is final while it is written is shown at once."""
    from saucier.jobs.writing.writer import write_freely

    live = not as_json and options["num_beams"] == options["num_return_sequences"] == 1
    speak = partial(print, end="", flush=True) if live else None
    written = write_freely(opened, text, options, direction=way, speak=speak)
    print_found(lambda: {"prompt": text, "texts": written}, lambda: "" if live else "\n\n".join(written),
                as_json=as_json)


def fill_to_screen(opened: "OpenModel", text: str, masks: int, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Fill in the mask tokens of a text; how many proposals were taken is said on standard error."""
    from saucier.jobs.writing.writer import fill_masks

    texts, done = fill_masks(opened, text, masks, options)
    print_found(lambda: {"prompt": text, "texts": texts, "proposed": done.proposed, "accepted": done.accepted},
                lambda: "\n".join(texts), as_json=as_json)
    if done.proposed and not as_json:
        typer.echo(f"took {done.accepted:,} of {done.proposed:,} proposals ({done.rate:.0%})", err=True)
