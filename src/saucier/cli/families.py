"""`saucier families`: which published checkpoints can be opened, and as what."""

from __future__ import annotations

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson

Name = Annotated[str, typer.Argument(metavar="[MODEL_TYPE]", help="One of them, with its fields. Default: the list.")]
Page = Annotated[bool, typer.Option("--page", help="Print docs/published.md.")]


def families(name: Name = "", *, page: Page = False, as_json: AsJson = False) -> None:
    """List the published layouts that can be opened and written, with their classes; or all about one of them."""
    from saucier.inspection import published
    from saucier.inspection.screen import put, put_json

    if page:
        typer.echo(published.page(), nl=False)
    elif as_json:
        found = [published.layout(name)] if name else published.layouts()
        put_json([published.as_plain(one) for one in found])
    else:
        put(published.details(published.layout(name)) if name else published.overview())
