"""`saucier schema`: the JSON Schema of a recipe, for editors."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of recipes; an editor that has it completes and checks them."""
    from saucier.inspection.screen import put_json
    from saucier.recipes import schema as found

    put_json(found())
