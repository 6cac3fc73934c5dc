"""`saucier generate`: let a model write, to the terminal while it writes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from saucier.cli.arguments import AsJson, Run

if TYPE_CHECKING:
    from saucier.generation.strategies import ChainStrategy
    from saucier.runs.opened import Opened
    from saucier.runs.writing import Manner

Prompts = Annotated[list[str] | None,
                    typer.Argument(metavar="[PROMPT]",
                                   help="The text to continue or to translate; standard input without it. "
                                                      "`--` before it where it starts with a dash.")]
Tokens = Annotated[int, typer.Option("--tokens", min=1, help="The most tokens to write.")]
Temperature = Annotated[float, typer.Option(min=0, help="0 takes the likeliest token every time.")]
TopK = Annotated[int | None, typer.Option(min=1, help="Draw from the k likeliest tokens only.")]
TopP = Annotated[float | None, typer.Option(max=1, help="Draw from the likeliest tokens that hold this probability.")]
Beams = Annotated[int, typer.Option(min=1, help="Beam search with so many hypotheses; nothing is drawn at random.")]
LengthPenalty = Annotated[float, typer.Option(help="Above 0 beams favour long texts.")]
Repetition = Annotated[float,
                       typer.Option("--repetition-penalty", min=0,
                                    help="Above 1 tokens that are there already are less likely.")]
NoRepeat = Annotated[int, typer.Option("--no-repeat-ngram", min=0, help="No n-gram of this size twice.")]
Stop = Annotated[list[str] | None,
                 typer.Option("--stop", metavar="TEXT", help="End behind this text. Can be given again.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="How many texts to write.")]
Seed = Annotated[int | None, typer.Option(min=0, help="The same seed draws the same text.")]
Strategy = Annotated[str | None,
                     typer.Option(metavar="'KIND [name=value]...'",
                                  help="Not from left to right: `gibbs` or `metropolis_hastings` fill in the mask "
                                       "tokens of a text, as in 'gibbs steps=200'; `mask_predict` sets "
                                       "how a model that writes whole texts does so.")]
Masks = Annotated[int, typer.Option(min=0, help="With such a strategy: so many mask tokens behind the text.")]
Compiled = Annotated[bool, typer.Option("--compile", help="Compile the model first: slow to start, then faster.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16.")]


def generate(run: Run, prompt: Prompts = None, *, tokens: Tokens = 200, temperature: Temperature = 0.8,
             top_k: TopK = None, top_p: TopP = None, beams: Beams = 1, length_penalty: LengthPenalty = 1.0,
             repetition_penalty: Repetition = 1.0, no_repeat_ngram: NoRepeat = 0, stop: Stop = None,
             samples: Samples = 1, seed: Seed = None, strategy: Strategy = None, masks: Masks = 0,
             compiled: Compiled = False, dtype: Dtype = "auto", device: Device = "auto",
             as_json: AsJson = False) -> None:
    """Let a model write on from a prompt, or translate one. Text appears while it is written."""
    from saucier.runs.opened import open_model
    from saucier.runs.writing import Manner, write_freely

    manner = Manner(tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, beams=beams,
                    length_penalty=length_penalty,
                    repetition_penalty=repetition_penalty, no_repeat_ngram=no_repeat_ngram, stop=tuple(stop or ()),
                    samples=samples,
                    seed=seed, compile=compiled)
    opened = open_model(run, dtype=dtype, device=device)
    text = " ".join(prompt) if prompt else "" if masks else sys.stdin.read().removesuffix("\n")
    if strategy is not None:
        from saucier.generation.strategies import MaskPredict
        from saucier.runs.filling import read_strategy

        read = read_strategy(strategy, opened.tokenizer)
        if not isinstance(read, MaskPredict):
            filled(opened, text, manner, strategy=read, masks=masks, as_json=as_json)
            return
        manner = replace(manner, strategy=read)
    live = not as_json and manner.streams
    written = write_freely(opened, text, manner, spoken if live else None)
    if as_json:
        from saucier.inspection.screen import put_json

        put_json({"prompt": text, "texts": written})
    else:
        typer.echo("" if live else "\n\n".join(written))


def filled(opened: Opened, text: str, manner: Manner, *, strategy: ChainStrategy, masks: int, as_json: bool) -> None:
    """Fill in the mask tokens of a text; how the chains went is said beside it."""
    from saucier.runs.filling import fill_in

    done = fill_in(opened, text, manner, strategy=strategy, masks=masks)
    if as_json:
        from saucier.inspection.screen import put_json

        put_json({"prompt": text, "texts": done.texts, "proposed": done.proposed, "accepted": done.accepted})
        return
    typer.echo("\n".join(done.texts))
    if done.words is not None:
        typer.echo(done.words, err=True)


def spoken(piece: str) -> None:
    """Put a piece of text on the screen at once."""
    sys.stdout.write(piece)
    sys.stdout.flush()
