"""Standard input can be read once only: a run keeps a copy of it, so that it can go on and be repeated."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from saucier.errors import InputError
from saucier.files import write_atomically
from saucier.recipes import Recipe
from saucier.text.config import LanguageData
from saucier.text.sources import find_sources

COPY = "input"


def is_standard_input(name: str) -> bool:
    """Whether a name among the data means standard input: `-`, or `-.jsonl` and the like."""
    return name == "-" or name.startswith("-.")


def kept(name: str, out: Path) -> Path:
    """Return where a run keeps its copy."""
    return out.absolute() / (COPY + (name[1:] or ".txt"))


def with_kept_input(recipe: Recipe, out: Path) -> Recipe:
    """Return the recipe with standard input replaced by the run's copy of it. Raises `InputError` among languages."""
    if isinstance(recipe.data, LanguageData):
        if any(map(is_standard_input, recipe.data.files)):
            raise InputError("standard input is no file of one language among several", where="data.languages",
                             remedy="write it to a file first")
        return recipe
    files = tuple(str(kept(name, out)) if is_standard_input(name) else name for name in recipe.data.files)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": files})})


def check_input(recipe: Recipe, out: Path) -> None:
    """Read standard input where the run has no copy yet. Raises `InputError` where there is nothing to read."""
    for name in recipe.data.files:
        if is_standard_input(name) and not kept(name, out).is_file():
            find_sources([name])


def keep_input(recipe: Recipe, out: Path) -> None:
    """Copy standard input into the run folder, where it is not yet there."""
    for name in recipe.data.files:
        target = kept(name, out)
        if is_standard_input(name) and not target.is_file():
            write_atomically(target, partial(copy, find_sources([name])[0].path))


def copy(source: Path, target: Path) -> None:
    """Copy a file of any size."""
    shutil.copyfile(source, target)
