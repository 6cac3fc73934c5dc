"""What a person asks for on the command line, as settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from saucier.errors import InputError, nearest
from saucier.files import is_folder, is_there
from saucier.finetuning.config import Finetuning, finetuning, read_finetuning
from saucier.hub import TUNED
from saucier.recipes.overrides import is_override
from saucier.tasks.config import TaskConfig
from saucier.text.sources import absolute


@dataclass(frozen=True, slots=True)
class Files:
    """The files that were named."""

    train: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, list[str]]:
        """Return those that are there, so that they mean the same from everywhere."""
        named = {"train": self.train, "held_out": self.held_out, "test": self.test}
        return {key: [absolute(name) for name in names] for key, names in named.items() if names}


def wanted_finetuning(what: str, words: Iterable[str], model: str | None,
                      files: Files) -> tuple[Finetuning, Path | None]:
    """Return the settings that a person means, and the folder where they gave one.

    `what` is a kind of task, a file of settings, or the folder of a fine-tuning; of the words those that are no
    `key.sub=value` are more training files, as a shell unfolds `--data *.tsv`. Raises `InputError`.
    """
    overrides, files = sorted_words(words, files)
    place = Path(what)
    if what not in task_kinds() and (is_folder(place) or place.suffix in (".yaml", ".yml")):
        settings = read_finetuning(place / TUNED if is_folder(place) else place,
                                   [*given(model, files), *overrides])
        return settings, place if is_folder(place) else None
    if what not in task_kinds():
        raise InputError(f"no task {what!r}", where="command line", remedy=nearest(what, task_kinds()))
    for value, option, example in ((model, "--model", "FOLDER"), (files.train, "--data", "train.tsv")):
        if not value:
            raise InputError(f"{option} is missing", where="command line", remedy=f"add {option} {example}")
    assert model is not None, "looked at above"
    values: dict[str, Any] = {"name": name_of(what, model, files.train[0]), "model": located(model),
                              "task": {"kind": what}, "data": files.as_dict()}
    return finetuning(values, overrides), None


def sorted_words(words: Iterable[str], files: Files) -> tuple[list[str], Files]:
    """Tell settings from further training files. Raises `InputError` for a word that is neither."""
    overrides, more = [], list(files.train)
    for word in words:
        if is_override(word):
            overrides.append(word)
        elif files.train:
            more.append(word)
        else:
            raise InputError(f"{word!r} is no setting", where="command line",
                             remedy="write key.sub=value, or --data FILE for labelled rows")
    return overrides, Files(tuple(more), files.held_out, files.test)


def given(model: str | None, files: Files) -> Sequence[str]:
    """Return what options change in settings that are there, as words."""
    found = [f"data.{key}={names}" for key, names in files.as_dict().items()]
    return found if model is None else [f"model={located(model)!r}", *found]


def located(model: str) -> str:
    """Return a model's path, so that it means the same from everywhere; a hub id as it is."""
    return absolute(model) if is_there(model) else model


def task_kinds() -> list[str]:
    """Name the kinds of task."""
    union = get_args(TaskConfig)[0]
    return [str(one.model_fields["kind"].default) for one in get_args(union)]


def name_of(kind: str, model: str, file: str) -> str:
    """Name a fine-tuning after its data and its model."""
    path = Path(file).absolute()
    words = f"{path.parent.name}-{path.name.split('.')[0]}-{Path(model).name}".lower()
    return re.sub(r"[^a-z0-9._-]+", "-", words).strip("-._") or kind
