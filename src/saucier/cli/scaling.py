"""`saucier scaling`: a power law through finished runs. Nothing is imported before it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, new_folder, print_found


def scaling(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or folders of comparisons.")],
    *,
    by: Annotated[str, typer.Option(
        "--by", help="both (parameters and tokens), parameters, tokens or flops.")] = "both",
    predict: Annotated[list[Path] | None, typer.Option(
        "--predict", metavar="RUN", help="Leave this run out and predict it; the largest ones by default. Can be given "
        "again.")] = None,
    out: Annotated[Path | None, typer.Option(
        "--out", metavar="DIR", callback=new_folder, help="Draw it into DIR/scaling.html.")] = None,
    page: Annotated[Path | None, typer.Option(
        "--page", metavar="FILE.md", help="Write it into a page of Markdown, its picture beside it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a scaling law to finished runs, and predict the largest of them, which it was not fitted to."""
    from saucier.errors import InputError, suggest_name
    from saucier.jobs.comparison import scaling as work
    from saucier.jobs.comparison.report import write_scaling_page

    if by not in work.LAWS:
        raise InputError(f"no law is called {by!r}", where="--by", remedy=suggest_name(by, list(work.LAWS)))
    folders = work.finished_runs(runs)
    predicted = work.finished_runs(predict or [])
    points = work.read_points(list(dict.fromkeys([*folders, *predicted])))
    left_out = [one for one in points if Path(one.name) in predicted] if predicted else \
        work.select_largest_runs(points)
    found = work.fit_law(work.LAWS[by], [one for one in points if one not in left_out], left_out)
    print_found(lambda: found.model_dump(mode="json"), lambda: work.render_fit(found), as_json=as_json)
    if page is not None:
        from saucier.jobs.comparison.report import write_law_page

        write_law_page(found, page)
    if out is not None:
        typer.echo(str(write_scaling_page(found, out)), err=as_json)
