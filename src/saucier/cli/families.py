"""`saucier families`: which published checkpoints can be opened, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, refuse_page

Name = Annotated[str, typer.Argument(metavar="[MODEL_TYPE]", help="One of them, with its fields. Default: the list.")]
Page = Annotated[bool, typer.Option("--page", callback=refuse_page,
                                    help="Until 0.2 this printed docs/published.md; now tools/book.py writes it.")]


def families(name: Name = "", *, page: Page = False, as_json: AsJson = False) -> None:
    """List the published layouts that can be opened and written, with their classes; or all about one of them."""
    from saucier.families import LAYOUTS
    from saucier.jobs.run.console import print_json, print_table
    from saucier.lens import layouts

    if as_json:
        found = [layouts.find_layout(name)] if name else list(LAYOUTS.values())
        print_json([layouts.layout_as_json(one) for one in found])
    else:
        print_table(layouts.layout_details(layouts.find_layout(name)) if name else layouts.layouts_overview())
