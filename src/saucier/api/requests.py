"""What a person gives in words: changes to settings, files or rows, a recipe with the models that it begins with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.arguments import Changes, Files, Place, Rows, format_overrides, is_override, split_overrides
from saucier.errors import InputError
from saucier.files import is_file, refuse_unwritable

if TYPE_CHECKING:
    from saucier.recipes import Recipe


def refuse_folder(place: Place) -> None:
    """Raise `InputError` where no folder can be written, before any work is done."""
    refuse_unwritable(Path(place), folder=True)


def refuse_file(place: Place) -> None:
    """Raise `InputError` where no file can be written, before any work is done."""
    refuse_unwritable(Path(place), folder=False)


def refuse_missing_model(place: Place) -> None:
    """Raise `InputError` for a model that is neither a folder here nor the id of a repository. Imports no torch."""
    from saucier.checkpoints.hub import is_hub_id
    from saucier.files import path_exists

    if not path_exists(Path(place)) and not is_hub_id(os.fspath(place)):
        raise InputError("no such folder", where=os.fspath(place),
                         remedy="give a folder, or the id of a repository as owner/name")


def refuse_missing_files(files: Rows) -> None:
    """Raise `InputError` for a file that is not there or cannot be read. Standard input is not looked at."""
    from saucier.text.reading.sources import find_sources, is_standard_input

    names = [os.fspath(one) for one in ([files] if isinstance(files, str | os.PathLike) else files)
             if isinstance(one, str | os.PathLike)] if isinstance(files, str | os.PathLike | Sequence) else []
    find_sources([name for name in names if not is_standard_input(name)])


def refuse_missing_runs(runs: Files) -> None:
    """Raise `InputError` for a run folder that is not there."""
    for name in file_names(runs):
        if not Path(name).is_dir():
            raise InputError("no such folder", where=name, remedy="give one that `saucier cook` made")


def optional_path(place: Place | None) -> Path | None:
    """Return a path, or None."""
    return None if place is None else Path(place)


def format_changes(changes: Changes) -> list[str]:
    """Return changes as words `key.sub=value`."""
    return list(format_overrides(dict(changes)) if isinstance(changes, Mapping) else changes)


def file_names(files: Files | None) -> list[str]:
    """Return the names of files."""
    if files is None:
        return []
    return [os.fspath(files)] if isinstance(files, str | os.PathLike) else [os.fspath(one) for one in files]


def row_files(rows: Rows | None, folder: Place | None, name: str) -> list[str]:
    """Return the names of files; rows in memory are written into the run's folder first, `runs` where there is none.

    Raises `InputError` for what is no rows.
    """
    if rows is None or isinstance(rows, str | os.PathLike):
        return file_names(rows)
    if isinstance(rows, list | tuple) and all(isinstance(one, str | os.PathLike) for one in rows):
        return [os.fspath(one) for one in rows]
    from saucier.text.reading.memory_rows import rows_to_file

    return [str(rows_to_file(rows, Path("runs" if folder is None else folder), name))]


def column_names(columns: Changes) -> dict[str, str]:
    """Return columns by what a task calls them; a column that is named alone is that of the text, "".

    Raises `InputError` for a name that is none.
    """
    words = [] if isinstance(columns, Mapping) else [word.partition("=") for word in columns]
    found = dict(columns) if isinstance(columns, Mapping) else \
        {role if mark else "": name if mark else role for role, mark, name in words}
    for role, name in found.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"{name!r} is no name of a column", where=f"--column {role}".strip(),
                             remedy="give NAME, or ROLE=NAME such as text=review")
    return found


@dataclass(frozen=True, slots=True)
class Begin:
    """What a model begins with, instead of random weights."""

    start: Place | None = None
    """Another model, whole."""
    encoder: Place | None = None
    decoder: Place | None = None
    """The sides of an encoder-decoder."""
    shared: bool = False
    """Both sides share their weights."""
    source_layers: int | None = None
    """Blocks of a new encoder that is put before that of `start`."""

    @property
    def has_sides(self) -> bool:
        """Whether a side is given. Raises `InputError` for `shared` alone."""
        if self.shared and self.encoder is None and self.decoder is None:
            raise InputError("there are no sides to share weights", where="--shared",
                             remedy="give --encoder or --decoder")
        return self.encoder is not None or self.decoder is not None

    def check(self, what: str | None) -> None:
        """Raise `InputError` for a recipe next to models from which it follows, and for no recipe at all."""
        if self.has_sides and (what is not None or self.start is not None):
            raise InputError("the recipe follows from the models of the sides", where="--encoder, --decoder",
                             remedy="leave out the recipe and --from, or set warm_start in the recipe")
        if self.source_layers is not None and (what is not None or self.start is None):
            raise InputError("a new encoder is put before that of a model to go on from", where="--source-encoder",
                             remedy="give --from MODEL, and no recipe")
        if what is None and self.start is None and not self.has_sides:
            raise InputError("which recipe?", where="command line",
                             remedy="`saucier recipes` lists them; or give --from")


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files of text: to learn from, to measure with, and pairs that a model made."""

    data: Sequence[str] = ()
    held_out: Sequence[str] = ()
    synthetic: Sequence[str] = ()
    delimiter: str | None = None
    encoding: str | None = None
    """How they are read; None: guessed."""

    @classmethod
    def of(cls, data: Rows | None, held_out: Rows | None, folder: Place | None, *, synthetic: Files | None = None,
           delimiter: str | None = None, encoding: str | None = None) -> TextFiles:
        """Return the files; rows in memory are written into the run's folder first, as `row_files` does."""
        return cls(row_files(data, folder, "data"), row_files(held_out, folder, "held-out"), file_names(synthetic),
                   delimiter, encoding)

    def changes(self) -> list[str]:
        """Return what they change in a recipe."""
        from saucier.text.reading.sources import make_absolute

        absolute = {name: list(map(make_absolute, getattr(self, name))) for name in ("data", "held_out", "synthetic")}
        held_out = {"kind": "files", "files": absolute["held_out"]}
        given = {"data.synthetic.files": absolute["synthetic"], "data.files": absolute["data"],
                 "data.held_out": held_out if self.held_out else (), "data.delimiter": self.delimiter,
                 "data.encoding": self.encoding}
        return [f"{key}={json.dumps(value)}" for key, value in given.items() if value]


def read_request(recipe: Place | Recipe | None, words: Sequence[str], files: TextFiles,
                 begin: Begin = Begin()) -> tuple[Recipe, Path | None]:
    """Return the recipe that a person means, and the run folder where they gave one. Raises `InputError`.

    With a model to begin with the recipe may be left out; the first word is then a change to it.
    """
    from saucier.recipes import Recipe
    from saucier.recipes import recipe as find_recipe

    if isinstance(recipe, Recipe):
        begin.check(recipe.name)
        return apply_changes(recipe, [*words, *files.changes()]), None
    what, words = None if recipe is None else os.fspath(recipe), list(words)
    begins = begin.start is not None or begin.has_sides
    if what is not None and (is_override(what) or (begins and files.data and is_file(what))):
        words, what = [what, *words], None
    begin.check(what)
    overrides, data = split_overrides(words, files.data, wrong="not a change to the recipe",
                                      remedy="write key.sub=value, or --data FILE for text")
    overrides += replace(files, data=data).changes()
    if what is None:
        return derive_recipe(begin, overrides), None
    folder = Path(what)
    if is_file(folder / "recipe.yaml"):
        return find_recipe(folder / "recipe.yaml", overrides), folder
    return find_recipe(what, overrides), None


def derive_recipe(begin: Begin, overrides: Sequence[str]) -> Recipe:
    """Return the recipe that follows from the models that a run begins with."""
    from saucier.jobs.pretraining.initialization import continued_recipe, warm_start_recipe

    if begin.has_sides:
        return warm_start_recipe(optional_path(begin.encoder), optional_path(begin.decoder), shared=begin.shared,
                                 overrides=overrides)
    assert begin.start is not None, "looked at by `check`"
    return continued_recipe(Path(begin.start), list(overrides), source_layers=begin.source_layers)


def apply_changes(recipe: Recipe, words: Sequence[str]) -> Recipe:
    """Return a recipe with changes. Raises `InputError`."""
    from saucier.recipes.catalogue import build_recipe
    from saucier.recipes.source import Source, apply_overrides

    values: dict[str, Any] = recipe.as_dict()
    source = Source(recipe.name, values)
    apply_overrides(source, words, type(recipe))
    return build_recipe(source)
