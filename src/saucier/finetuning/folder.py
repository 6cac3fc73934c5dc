"""The folder of a fine-tuning: where each thing stands, and who may write into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from saucier.errors import InputError
from saucier.files import first_free, is_taken, read_object, write_json, write_text
from saucier.finetuning.config import Finetuning, read_finetuning
from saucier.hub import TUNED
from saucier.plain import first_difference
from saucier.tasks.build import build_task
from saucier.tasks.config import TaskConfig

HEAD = "# This fine-tuning, with every value. `saucier finetune FOLDER` goes on with it.\n"
TASK_FILE = "task.json"
DESCRIPTIVE = ("name",)


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The paths of one fine-tuning."""

    path: Path

    @property
    def settings(self) -> Path:
        """The resolved settings."""
        return self.path / TUNED

    @property
    def model(self) -> Path:
        """The finished model with its tokenizer and task, ready to be used anywhere."""
        return self.path / "model"

    @property
    def scores(self) -> Path:
        """What was measured; the last file that is written."""
        return self.path / "scores.json"

    def predictions(self, split: str) -> Path:
        """The model's answers on a split."""
        return self.path / "predictions" / f"{split}.jsonl"

    @property
    def is_begun(self) -> bool:
        """Whether a fine-tuning was begun here."""
        return self.settings.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether it was measured, which is done last."""
        return self.scores.is_file()


def begin(path: Path, wanted: Finetuning) -> TaskFolder:
    """Return a new or empty folder, or that of the same fine-tuning to go on with; nothing is written (see `settle`).

    Raises `InputError` for a folder with another one, or with anything else in it.
    """
    folder = TaskFolder(path)
    if path.exists() and not path.is_dir():
        raise InputError("is a file", where=str(path), remedy="give a new folder with --out")
    if folder.is_begun:
        old, new = (one.model_dump(mode="json", exclude=set(DESCRIPTIVE))
                    for one in (read_finetuning(folder.settings), wanted))
        there, here = ({"task": {"kind": one["task"]["kind"]}} for one in (old, new))  # another kind has other keys
        if found := first_difference(there, here) or first_difference(old, new):
            raise InputError(f"holds another fine-tuning: {found[0]} is {found[1]!r} there, and {found[2]!r} here",
                             where=str(path), remedy="give a new folder with --out")
    elif is_taken(path):
        raise InputError("holds files that are no fine-tuning", where=str(path), remedy="give a new folder with --out")
    return folder


def settle(folder: TaskFolder, wanted: Finetuning) -> None:
    """Write the settings, once the rows were read: files that are refused leave no folder behind."""
    if not folder.is_begun:
        write_text(folder.settings, HEAD + yaml.safe_dump(wanted.as_dict(), sort_keys=False, allow_unicode=True,
                                                          width=120))


def default_folder(wanted: Finetuning, parent: Path = Path("runs")) -> Path:
    """Return `runs/NAME`, or the first of `runs/NAME-2`, ... that does not hold something else."""

    def taken(path: Path) -> bool:
        folder = TaskFolder(path)
        return is_taken(path) and not (folder.is_begun and read_finetuning(folder.settings) == wanted)

    return first_free(parent / wanted.name, taken)


def write_task(folder: Path, task: TaskConfig, length: int) -> None:
    """Write beside a model what it was trained to do, so that it can be asked."""
    write_json(folder / TASK_FILE, {"task": task.model_dump(mode="json"), "length": length})


def copy_task(folder: Path, target: Path, room: int | None = None) -> None:
    """Write what a model was trained to do beside what was made of it; `room`: the most tokens that this reads."""
    saved = read_task(folder)
    if saved is not None:
        write_task(target, saved[0], saved[1] if room is None else min(saved[1], room))


def task_labels(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's outputs, as what it was trained to do tells them; none where nothing does."""
    saved = read_task(folder)
    return () if saved is None else build_task(saved[0]).wanted.labels


def read_task(folder: Path) -> tuple[TaskConfig, int] | None:
    """Read what a model was trained to do, and its longest row; None where that is not told."""
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    document = read_object(path)
    try:
        task: TaskConfig = TypeAdapter(TaskConfig).validate_python(document.get("task"))
        return task, int(document["length"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a task: {str(error).splitlines()[0]}", where=str(path),
                         remedy="fine-tune again into a new folder") from error
