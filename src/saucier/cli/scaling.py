"""`saucier scaling`: a power law through finished runs. Nothing is imported before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of comparisons.")]
By = Annotated[str, typer.Option("--by", help="both (parameters and tokens), parameters, tokens or flops.")]
LeftOut = Annotated[list[Path] | None, typer.Option(
    "--predict", metavar="RUN", help="Leave this run out and predict it; the largest ones by default. "
                                     "Can be given again.")]
MarkdownPage = Annotated[Path | None, typer.Option(
    "--page", metavar="FILE.md", help="Write it into a page of Markdown, its picture beside it.")]
Page = Annotated[Path | None, typer.Option("--out", metavar="DIR", callback=new_folder,
                                           help="Draw it into DIR/scaling.html.")]


def scaling(runs: Runs, *, by: By = "both", predict: LeftOut = None, out: Page = None,
            page: MarkdownPage = None, as_json: AsJson = False) -> None:
    """Fit a scaling law to finished runs, and predict the largest of them, which it was not fitted to."""
    from saucier.comparison import scaling_runs as work
    from saucier.comparison.scaling import fit
    from saucier.inspection.screen import put, put_json

    law, wanted = work.law_of(by), work.finished_runs(runs)
    named = work.finished_runs(predict or [])
    points = work.points(list(dict.fromkeys([*wanted, *named])))
    left_out = [one for one in points if Path(one.name) in named] if named else work.largest(points)
    found = fit(law, [one for one in points if one not in left_out], left_out)
    if as_json:
        put_json(found.model_dump(mode="json"))
    else:
        put(work.render(found))
    if page is not None:
        from saucier.comparison.page import write_law

        write_law(found, page)
    if out is not None:
        typer.echo(str(work.write_page(found, out)), err=as_json)
