"""Who may write into a run folder, and its copy of standard input. No run ever overwrites another.

Standard input can be read once only: a run keeps a copy of it, so that it can be resumed and repeated.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml

from saucier.errors import InputError
from saucier.files import find_free_name, is_taken, write_atomically, write_text
from saucier.opened import PASSPORT_FILE, RunFolder
from saucier.plain import first_difference
from saucier.recipes import Recipe
from saucier.text.config import LanguageData
from saucier.text.reading.sources import find_sources

DESCRIPTIVE_SECTIONS = ("name", "about", "paper", "year", "book", "claims")
"""Sections of a recipe that only tell a person about it."""
SECTIONS_AFTER_TRAINING = ("evaluation", "sampling")
"""Sections that do not change what is learned; a run that was stopped may go on with others."""
HARMLESS_TRAINING_KEYS = ("micro_batch", "log_every", "keep", "events", "save_every", "compile")
"""Keys of `training` that do not, either."""
RECIPE_HEADER = "# The recipe of this run, with every value. `saucier cook` goes on with it, `saucier rerun` repeats " \
    "it.\n"

RunState = Literal["new", "resumed", "finished"]


def open_run(path: Path, wanted: Recipe) -> tuple[RunFolder, RunState]:
    """Begin a run in a new or empty folder, or go on with the same one.

    Raises `InputError` for a folder with another run, or with anything else in it.
    """
    folder = RunFolder(path)
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise InputError("is a file", where=str(place), remedy="give a new folder with --out")
    if folder.is_run and not is_abandoned(folder, wanted):
        standing: RunState = "finished" if folder.is_finished else "resumed"
        refuse_other_run(folder, wanted)
    elif is_taken(path) and not folder.is_run:
        raise InputError("holds files that are not a run", where=str(path), remedy="give a new folder with --out")
    else:
        standing = "new"
        (path / PASSPORT_FILE).unlink(missing_ok=True)
    if standing != "finished":
        values = yaml.safe_dump(wanted.as_dict(), sort_keys=False, allow_unicode=True, width=120)
        write_text(folder.recipe_file, RECIPE_HEADER + values)
    return folder, standing


def is_abandoned(folder: RunFolder, wanted: Recipe) -> bool:
    """Whether a folder holds another recipe, of which nothing came: a better one may take its place."""
    return folder.is_unstarted and essential_settings(folder.recipe()) != essential_settings(wanted)


def refuse_other_run(folder: RunFolder, wanted: Recipe) -> None:
    """Raise `InputError` that names the first key in which the folder's recipe differs from the one that is wanted."""
    whole = folder.is_finished
    found = first_difference(essential_settings(folder.recipe(), whole=whole), essential_settings(wanted, whole=whole))
    if found is not None:
        key, old, new = found
        raise InputError(f"holds a run of another recipe: {key} is {old!r} there, and {new!r} here",
                         where=str(folder.path),
                         remedy="give the folder instead of a recipe to go on with it, or a new folder with --out")


def essential_settings(recipe: Recipe, *, whole: bool = False) -> dict[str, Any]:
    """Return what decides the weights that a run ends with; the `whole` result, with what is done after training."""
    without = DESCRIPTIVE_SECTIONS if whole else DESCRIPTIVE_SECTIONS + SECTIONS_AFTER_TRAINING
    values = {key: value for key, value in recipe.as_dict().items() if key not in without}
    values["training"] = {key: value for key, value in values["training"].items() if key not in HARMLESS_TRAINING_KEYS}
    return values


def default_folder(wanted: Recipe, parent: Path = Path("runs")) -> Path:
    """Return `runs/NAME`, or the first of `runs/NAME-2`, ... that does not hold something else."""
    return find_free_name(parent / wanted.name, lambda path: not is_free_for(path, wanted))


def is_free_for(path: Path, wanted: Recipe) -> bool:
    """Whether a run may be begun in a folder, or gone on with."""
    folder = RunFolder(path)
    if folder.is_run:
        try:
            whole = folder.is_finished
            same = essential_settings(folder.recipe(), whole=whole) == essential_settings(wanted, whole=whole)
            return same or folder.is_unstarted
        except InputError:
            return False  # of another version: leave it alone
    return not is_taken(path)


COPY_NAME = "input"


def is_standard_input(name: str) -> bool:
    """Whether a name among the data means standard input: `-`, or `-.jsonl` and the like."""
    return name == "-" or name.startswith("-.")


def copy_path(name: str, out: Path) -> Path:
    """Return where a run keeps its copy."""
    return out.absolute() / (COPY_NAME + (name[1:] or ".txt"))


def with_copied_input(recipe: Recipe, out: Path) -> Recipe:
    """Return the recipe with standard input replaced by the run's copy of it. Raises `InputError` among languages."""
    if isinstance(recipe.data, LanguageData):
        if any(map(is_standard_input, recipe.data.files)):
            raise InputError("standard input is no file of one language among several", where="data.languages",
                             remedy="write it to a file first")
        return recipe
    files = tuple(str(copy_path(name, out)) if is_standard_input(name) else name for name in recipe.data.files)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"files": files})})


def check_input(recipe: Recipe, out: Path) -> None:
    """Read standard input where the run has no copy yet. Raises `InputError` where there is nothing to read."""
    for name in recipe.data.files:
        if is_standard_input(name) and not copy_path(name, out).is_file():
            find_sources([name])


def copy_input(recipe: Recipe, out: Path) -> None:
    """Copy standard input into the run folder, where it is not yet there."""
    for name in recipe.data.files:
        target = copy_path(name, out)
        if is_standard_input(name) and not target.is_file():
            write_atomically(target, partial(copy_file, find_sources([name])[0].path))


def copy_file(source: Path, target: Path) -> None:
    """Copy a file of any size."""
    shutil.copyfile(source, target)
