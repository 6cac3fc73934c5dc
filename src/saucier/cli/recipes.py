"""`saucier recipes`: what there is to cook."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saucier.cli.arguments import AsJson, print_found, refuse_page

if TYPE_CHECKING:
    from saucier.recipes import Recipe
    from saucier.table import Table


def recipes(
    *,
    as_json: AsJson = False,
    book: Annotated[bool, typer.Option(
        "--book", callback=refuse_page, help="Until 0.2 this printed docs/book.md; now tools/book.py writes "
        "it.")] = False,
    bodies: Annotated[bool, typer.Option(
        "--bodies", callback=refuse_page, help="Until 0.2 this printed docs/bodies.md; now tools/book.py writes "
        "it.")] = False,
) -> None:
    """List the recipes: family, objective, parameters and what they are for."""
    from saucier.recipes import names, recipe

    found = [recipe(name) for name in names()]
    print_found(lambda: [recipe_as_json(one) for one in found], lambda: recipes_table(found), as_json=as_json)


def recipe_as_json(one: "Recipe") -> dict[str, Any]:
    """Return what the table says, as plain values."""
    from saucier.config import parameters

    return {"name": one.name, "family": one.family, "objective": one.objective.kind,
            "parameters": parameters(one.model), "year": one.year,
            "book": list(one.book), "about": one.about, "paper": one.paper,
            "claims": one.claims.model_dump(exclude_none=True)}


def recipes_table(found: "list[Recipe]") -> "Table":
    """Return the table for a person."""
    from saucier.config import parameters
    from saucier.plain import format_quantity
    from saucier.table import Table

    rows = [(one.name, one.family, one.objective.kind, format_quantity(parameters(one.model)), one.about)
            for one in found]
    return Table(("recipe", "family", "objective", "parameters", "about"), rows, numbers=(3,), folded=(4,),
                 colours={0: "cyan"})
