"""The run folder: where each thing stands, and who may write into it. No run ever overwrites another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from saucier.errors import InputError
from saucier.files import entries, first_free, is_file, is_taken, write_text
from saucier.plain import first_difference
from saucier.recipes import Recipe, recipe
from saucier.runs.passport import FILE_NAME

DESCRIPTIVE = ("name", "about", "paper", "year", "book", "claims")
"""Sections of a recipe that only tell a person about it."""
AFTERWARDS = ("evaluation", "sampling")
"""Sections that do not change what is learned; a run that was stopped may go on with others."""
HARMLESS = ("micro_batch", "log_every", "keep", "events", "save_every", "compile")
"""Keys of `training` that do not, either."""
BARE = ("recipe.yaml", FILE_NAME)
"""What stands in a folder whose run has read nothing yet."""
HEAD = "# The recipe of this run, with every value. `saucier cook` goes on with it, `saucier rerun` repeats it.\n"

Standing = Literal["new", "resumed", "finished"]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def recipe_file(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.yaml"

    @property
    def tokenizer(self) -> Path:
        """The trained tokenizer, as transformers reads it too."""
        return self.path / "tokenizer"

    @property
    def train_store(self) -> Path:
        """The tokens that are learned from."""
        return self.path / "store" / "train"

    @property
    def held_out_store(self) -> Path:
        """The tokens that are measured with."""
        return self.path / "store" / "held_out"

    @property
    def data_file(self) -> Path:
        """What was read, and what became of it."""
        return self.path / "store" / "data.json"

    @property
    def samples(self) -> Path:
        """Texts that the model wrote."""
        return self.path / "samples.txt"

    @property
    def is_run(self) -> bool:
        """Whether a run was begun here."""
        return is_file(self.recipe_file)

    @property
    def is_bare(self) -> bool:
        """Whether nothing came of a run that was begun: its text or its settings were refused."""
        return all(one.name in BARE for one in entries(self.path))

    @property
    def is_finished(self) -> bool:
        """Whether the run was evaluated, which is done last."""
        return (self.path / "evaluation.json").is_file()

    def recipe(self) -> Recipe:
        """Read the run's recipe."""
        return recipe(self.recipe_file)


def open_run(path: Path, wanted: Recipe) -> tuple[RunFolder, Standing]:
    """Begin a run in a new or empty folder, or go on with the same one.

    Raises `InputError` for a folder with another run, or with anything else in it.
    """
    folder = RunFolder(path)
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise InputError("is a file", where=str(place), remedy="give a new folder with --out")
    if folder.is_run and not is_given_up(folder, wanted):
        standing: Standing = "finished" if folder.is_finished else "resumed"
        refuse_other_run(folder, wanted)
    elif is_taken(path) and not folder.is_run:
        raise InputError("holds files that are not a run", where=str(path), remedy="give a new folder with --out")
    else:
        standing = "new"
        (path / FILE_NAME).unlink(missing_ok=True)
    if standing != "finished":
        values = yaml.safe_dump(wanted.as_dict(), sort_keys=False, allow_unicode=True, width=120)
        write_text(folder.recipe_file, HEAD + values)
    return folder, standing


def is_given_up(folder: RunFolder, wanted: Recipe) -> bool:
    """Whether a folder holds another recipe, of which nothing came: a better one may take its place."""
    return folder.is_bare and essential(folder.recipe()) != essential(wanted)


def refuse_other_run(folder: RunFolder, wanted: Recipe) -> None:
    """Raise `InputError` that names the first key in which the folder's recipe differs from the one that is wanted."""
    whole = folder.is_finished
    found = first_difference(essential(folder.recipe(), whole=whole), essential(wanted, whole=whole))
    if found is not None:
        key, old, new = found
        raise InputError(f"holds a run of another recipe: {key} is {old!r} there, and {new!r} here",
                         where=str(folder.path),
                         remedy="give the folder instead of a recipe to go on with it, or a new folder with --out")


def essential(recipe: Recipe, *, whole: bool = False) -> dict[str, Any]:
    """Return what decides the weights that a run ends with; the `whole` result, with what is done after training."""
    without = DESCRIPTIVE if whole else DESCRIPTIVE + AFTERWARDS
    values = {key: value for key, value in recipe.as_dict().items() if key not in without}
    values["training"] = {key: value for key, value in values["training"].items() if key not in HARMLESS}
    return values


def default_folder(wanted: Recipe, parent: Path = Path("runs")) -> Path:
    """Return `runs/NAME`, or the first of `runs/NAME-2`, ... that does not hold something else."""
    return first_free(parent / wanted.name, lambda path: not is_free_for(path, wanted))


def is_free_for(path: Path, wanted: Recipe) -> bool:
    """Whether a run may be begun in a folder, or gone on with."""
    folder = RunFolder(path)
    if folder.is_run:
        try:
            whole = folder.is_finished
            return essential(folder.recipe(), whole=whole) == essential(wanted, whole=whole) or folder.is_bare
        except InputError:
            return False  # of another version: leave it alone
    return not is_taken(path)


def run_of(path: Path) -> Path:
    """Return the run folder of a checkpoint, `RUN/checkpoints/step-N`; any other folder stays as it is."""
    place = path.absolute()
    return place.parent.parent if place.parent.name == "checkpoints" else path
