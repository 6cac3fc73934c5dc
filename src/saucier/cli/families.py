"""`saucier families`: which published checkpoints can be opened, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson

Name = Annotated[str, typer.Argument(metavar="[MODEL_TYPE]", help="One of them, with its fields. Default: the list.")]
Page = Annotated[bool, typer.Option("--page", help="Print docs/published.md.")]


def families(name: Name = "", *, page: Page = False, as_json: AsJson = False) -> None:
    """List the published layouts that can be opened and written, with their classes; or all about one of them."""
    from saucier.jobs.run.console import print_json, print_table
    from saucier.report import published

    if page:
        typer.echo(published.published_page(), nl=False)
    elif as_json:
        found = [published.find_layout(name)] if name else published.list_layouts()
        print_json([published.layout_as_json(one) for one in found])
    else:
        print_table(published.layout_details(published.find_layout(name)) if name else published.layouts_overview())
