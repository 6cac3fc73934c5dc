"""`saucier schema`: the JSON Schema of a recipe, for editors."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of recipes; an editor that has it completes and checks them."""
    from saucier.jobs.run.console import print_json
    from saucier.recipes import schema as found

    print_json(found())
