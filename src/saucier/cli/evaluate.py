"""`saucier evaluate`: how good a model is on a file."""

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, print_found


def evaluate(
    model: Annotated[str, typer.Argument(
        metavar="MODEL", help="A run, a fine-tuning, a model folder in any layout, an adapter, or a hub id.")],
    files: Annotated[list[str] | None, typer.Argument(
        metavar="[FILE]... [key.sub=value]...", help="Text for a language model, labelled rows for a task, pairs for a "
        "translator; what a run or a fine-tuning holds out without it. data.column=COLUMN and task.label=COLUMN say "
        "how they are read.")] = None,
    *,
    baselines: Annotated[bool, typer.Option(
        "--baselines", help="Measure simple methods, too: n-grams and xz for a language model, those of a "
        "fine-tuning's task.")] = False,
    beams: Annotated[int | None, typer.Option(min=1, help="Beams of a model that writes.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The first documents, pairs or rows only.")] = None,
    stride: Annotated[int | None, typer.Option(
        min=1, help="Let windows overlap: each begins so many tokens after the last. Of a masked model: hide every "
        "so-manieth token at a time.")] = None,
    length: Annotated[int | None, typer.Option(
        min=2, help="Tokens of a window; as many as the model reads by default.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Rows in one pass.")] = None,
    memory: Annotated[int | None, typer.Option(
        min=1, help="Tokens that a model with a memory remembers; as in training by default.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    base: Base = None, as_json: AsJson = False,
) -> None:
    """Measure a model on a file: perplexity and bits per byte of text, scores of answers, each with an interval."""
    from saucier.jobs.evaluation.evaluate import evaluate as work
    from saucier.jobs.evaluation.measurement import EvaluationOptions
    from saucier.recipes.source import is_override

    words = files or []
    found = work(model, [word for word in words if not is_override(word)], EvaluationOptions(
        changes=[word for word in words if is_override(word)], baselines=baselines, beams=beams, limit=limit,
        stride=stride, length=length, batch=batch, memory=memory, dtype=dtype, base=base))
    print_found(found.to_dict, found.view, as_json=as_json)
