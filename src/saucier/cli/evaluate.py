"""`saucier evaluate`: how well a run's model predicts a text, or translates one."""

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, Run, print_found


def evaluate(
    run: Run,
    files: Annotated[list[str] | None, typer.Argument(
        metavar="[FILE]...", help="Text, or pairs for a translator; the run's own held-out text without it.")] = None,
    *,
    baselines: Annotated[bool, typer.Option(
        "--baselines", help="Compare a language model with a unigram model, a 5-gram model and xz.")] = False,
    beams: Annotated[int | None, typer.Option(min=1, help="Beams of a translator; the recipe's by default.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Translate so many pairs only.")] = None,
    stride: Annotated[int | None, typer.Option(
        min=1, help="Let rows overlap: each begins so many tokens after the last.")] = None,
    batch: Annotated[int | None, typer.Option(
        "--batch", min=1, help="Rows in one pass; the recipe's by default.")] = None,
    memory: Annotated[int | None, typer.Option(
        min=1, help="Tokens that a model with a memory remembers; as in training by default.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    base: Base = None, as_json: AsJson = False,
) -> None:
    """Measure a run: loss, perplexity and bits per byte of text; BLEU and chrF of translations."""
    from saucier.jobs.pretraining.held_out import describe_measurements, evaluate_again
    from saucier.plain import format_quantity
    from saucier.tasks.language_baselines import KINDS

    changes = {"baselines": KINDS if baselines else None, "beams": beams, "limit": limit, "stride": stride,
               "batch": batch}
    found = evaluate_again(run, tuple(files or ()), changes=changes, dtype=dtype, memory=memory, base=base)
    print_found(found.as_json, as_json=as_json, shown=lambda: "\n".join(
        [*describe_measurements(found.held_out, found.baselines, found.scores),
         f"{format_quantity(found.tokens_per_second)} tokens/s"]))
