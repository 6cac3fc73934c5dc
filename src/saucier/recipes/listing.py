"""What there is to cook, and how a recipe is written: the list of our recipes, and the schema of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from saucier.config import parameters
from saucier.plain import format_quantity
from saucier.recipes.catalogue import names, recipe
from saucier.recipes.recipe import Recipe
from saucier.result import Result
from saucier.table import Table


@dataclass(frozen=True, slots=True)
class RecipeList(Result):
    """Recipes, in the order of their names."""

    found: tuple[Recipe, ...]

    @classmethod
    def of_ours(cls) -> RecipeList:
        """Read those of the package."""
        return cls(tuple(map(recipe, names())))

    def view(self) -> Table:
        """Return what `saucier recipes` prints."""
        rows = [(one.name, one.family, one.objective.kind, format_quantity(parameters(one.model)), one.about)
                for one in self.found]
        return Table(("recipe", "family", "objective", "parameters", "about"), rows, numbers=(3,), folded=(4,),
                     colours={0: "cyan"})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"recipes": self.to_json()}

    def to_json(self) -> list[dict[str, Any]]:
        """Return what the table says of each recipe."""
        return [{"name": one.name, "family": one.family, "objective": one.objective.kind,
                 "parameters": parameters(one.model), "year": one.year, "book": list(one.book), "about": one.about,
                 "paper": one.paper, "claims": one.claims.model_dump(exclude_none=True)} for one in self.found]


@dataclass(frozen=True, slots=True)
class RecipeSchema(Result):
    """The JSON Schema of a recipe, for editors."""

    found: dict[str, Any]

    def view(self) -> str:
        """Return it as the text of a file."""
        return json.dumps(self.found, indent=2, ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it."""
        return self.found
