"""`saucier prompt`: what a model answers with no, one or a few examples in front."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, Base, new_folder, print_found


def prompt(
    task: Annotated[Path, typer.Argument(metavar="TASK.yaml", help="The task: files, wording, how answers are taken.")],
    *,
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="A model folder, a run, or a hub id.")],
    shots: Annotated[str, typer.Option(
        "--shots", metavar="N,...", help="Examples in front of each question: 0,1,4.")] = "0",
    draws: Annotated[int, typer.Option(min=1, help="Times that the examples are drawn anew.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many questions only.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the examples and the intervals.")] = 0,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="A new folder; runs/prompt-NAME by default.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    base: Base = None, as_json: AsJson = False,
) -> None:
    """Evaluate a model in context: zero-, one- and few-shot, by the likelihood of choices or by what it writes.

    The exact text that was sent, and every answer, stand in DIR/results.jsonl.
    """
    from saucier.files import find_free_name
    from saucier.jobs.prompting.evaluation import PromptPlan, render_prompting, run_prompting
    from saucier.jobs.prompting.prompted_model import open_prompted_model, read_shots
    from saucier.jobs.prompting.questions import read_task
    from saucier.plain import json_value

    settings = read_task(task)
    plan = PromptPlan(read_shots(shots), draws, limit, seed)
    folder = out or find_free_name(Path("runs") / f"prompt-{settings.name}")
    found = run_prompting(settings, open_prompted_model(model, dtype, base), plan, model=model, out=folder)
    print_found(lambda: json_value(found), lambda: render_prompting(found), as_json=as_json)
