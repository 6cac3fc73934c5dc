"""`saucier compare`: recipes at an equal budget. Nothing is imported before it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, DataFiles, HeldOutFiles, new_folder, print_found


def compare(
    what: Annotated[list[str], typer.Argument(
        metavar="A B...|STUDY", help="Recipes by name or file, or one study file; then changes to all, key.sub=value, "
        "or to one, A:key.sub=value.")],
    *,
    budget: Annotated[str | None, typer.Option(
        "--budget", metavar="UNIT=AMOUNT", help="flops=1e15, tokens=2e6, seconds=300 or parameters=2e6 for each "
        "run.")] = None,
    seeds: Annotated[int | None, typer.Option(
        "--seeds", metavar="N", help="Runs of each recipe; 3 by default.")] = None,
    data: DataFiles = None, held_out: HeldOutFiles = None,
    judge: Annotated[str | None, typer.Option(
        "--judge", metavar="JUDGE", help="loss; or accuracy after fine-tuning: classify:TRAIN.tsv,DEV.tsv of texts, "
        "tag:TRAIN.tsv,DEV.tsv of words.")] = None,
    own_tokenizers: Annotated[bool, typer.Option(
        "--own-tokenizers", help="Each recipe trains its own tokenizer.")] = False,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="The folder; runs/NAME by default.")] = None,
    page: Annotated[Path | None, typer.Option(
        "--page", metavar="FILE.md", help="Also write a page of Markdown, its picture beside it; what stands under its "
        "last heading, 'What it says', is yours and stays.")] = None,
    workers: Annotated[int, typer.Option(
        "--workers", min=1, metavar="N", help="So many runs side by side, on Ray.")] = 1,
    threads: Annotated[int | None, typer.Option("--threads", min=1, metavar="N", help="Threads of one run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train recipes at an equal budget, each with several seeds, and say which differences are real.

    A comparison that was stopped goes on where it was, also with more seeds.
    """
    from saucier.jobs.comparison.compare import compare as work
    from saucier.jobs.comparison.experiment import read_budget, read_experiment, read_judge
    from saucier.jobs.comparison.outcome import render_outcome

    options = {"budget": budget and read_budget(budget).model_dump(), "seeds": seeds,
               "judge": judge and read_judge(judge), "own_tokenizers": own_tokenizers or None}
    experiment = read_experiment(what, options, data or (), held_out or ())
    found = work(experiment, out or Path("runs") / experiment.name, workers=workers, threads=threads, quiet=as_json)
    if page is not None:
        from saucier.jobs.comparison.report import write_comparison_page

        write_comparison_page(found, page)
    print_found(lambda: found.model_dump(mode="json"), lambda: render_outcome(found), as_json=as_json)
