"""`saucier recipes`: what there is to cook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saucier.cli.arguments import AsJson, refuse_page

if TYPE_CHECKING:
    from rich.table import Table

    from saucier.recipes import Recipe

Book = Annotated[bool,
                 typer.Option("--book", callback=refuse_page,
                              help="Until 0.2 this printed docs/book.md; now tools/book.py writes it.")]
Bodies = Annotated[bool,
                   typer.Option("--bodies", callback=refuse_page,
                                help="Until 0.2 this printed docs/bodies.md; now tools/book.py writes it.")]


def recipes(*, as_json: AsJson = False, book: Book = False, bodies: Bodies = False) -> None:
    """List the recipes: family, objective, parameters and what they are for."""
    from saucier.jobs.run.console import print_json, print_table
    from saucier.recipes import names, recipe

    found = [recipe(name) for name in names()]
    if as_json:
        print_json([summary(one) for one in found])
    else:
        print_table(table(found))


def summary(one: Recipe) -> dict[str, Any]:
    """Return what the table says, as plain values."""
    from saucier.config import parameters

    return {"name": one.name, "family": one.family, "objective": one.objective.kind,
            "parameters": parameters(one.model), "year": one.year,
            "book": list(one.book), "about": one.about, "paper": one.paper,
            "claims": one.claims.model_dump(exclude_none=True)}


def table(found: list[Recipe]) -> Table:
    """Return the table for a person."""
    from rich.table import Table

    from saucier.plain import format_quantity

    shown = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("recipe", "family", "objective"):
        shown.add_column(heading, style="cyan" if heading == "recipe" else "", no_wrap=True)
    shown.add_column("parameters", justify="right", no_wrap=True)
    shown.add_column("about", overflow="fold")
    for values in map(summary, found):
        shown.add_row(values["name"], values["family"], values["objective"], format_quantity(values["parameters"]),
                      values["about"])
    return shown
