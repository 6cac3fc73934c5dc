"""`saucier families`: which published checkpoints can be opened, and as what."""

from typing import Annotated

import typer

from saucier.cli.arguments import AsJson, print_found, refuse_page


def families(
    name: Annotated[str, typer.Argument(
        metavar="[MODEL_TYPE]", help="One of them, with its fields. Default: the list.")] = "",
    *,
    page: Annotated[bool, typer.Option(
        "--page", callback=refuse_page, help="Until 0.2 this printed docs/published.md; now tools/book.py writes "
        "it.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the published layouts that can be opened and written, with their classes; or all about one of them."""
    from saucier.families import LAYOUTS
    from saucier.lens import layouts
    from saucier.table import Table

    found = [layouts.find_layout(name)] if name else list(LAYOUTS.values())
    overview = Table(("model_type", "classes"), [(one.model_type, ", ".join(one.classes)) for one in found],
                     folded=(1,), colours={0: "cyan"})
    print_found(lambda: [layouts.layout_as_json(one) for one in found],
                lambda: layouts.layout_details(found[0]) if name else overview, as_json=as_json)
