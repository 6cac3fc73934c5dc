"""The Book's recipes: one YAML file each, read into a typed `Recipe`. Adding a recipe is adding a file here."""

from saucier.recipes.catalogue import names, recipe, schema
from saucier.recipes.recipe import Recipe

__all__ = ["Recipe", "names", "recipe", "schema"]
