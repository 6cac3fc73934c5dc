"""The folder of a fine-tuning, and the file next to its model that says what the model was trained to do. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from saucier.config.registry import name_packages, require_packages
from saucier.errors import InputError
from saucier.files import read_object, write_json
from saucier.result import Result
from saucier.tasks.build import build_task
from saucier.tasks.definitions import TaskConfig

TASK_FILE = "task.json"


@dataclass(frozen=True, slots=True)
class TaskFolder(Result):
    """The paths of one fine-tuning."""

    path: Path

    def view(self) -> str:
        """Say where it is."""
        return str(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the folder and, of a finished one, its scores."""
        return {"folder": str(self.path), "scores": read_object(self.scores) if self.is_finished else None}

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
    def is_finished(self) -> bool:
        """Whether it was measured, which is done last."""
        return self.scores.is_file()


def write_task(folder: Path, task: TaskConfig, length: int) -> None:
    """Write next to a model what it was trained to do, so that it can answer."""
    values = task.model_dump(mode="json")
    write_json(folder / TASK_FILE, {"task": values, "length": length, **name_packages(values)})


def copy_task(folder: Path, target: Path, most: int | None = None) -> None:
    """Write what a model was trained to do next to what was made of it; `most`: tokens that this reads."""
    saved = read_task(folder)
    if saved is not None:
        write_task(target, saved[0], saved[1] if most is None else min(saved[1], most))


def read_task_labels(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's outputs, from the task that it was trained on; none where no task names them."""
    saved = read_task(folder)
    return () if saved is None else build_task(saved[0]).required_head.labels


def read_task(folder: Path) -> tuple[TaskConfig, int] | None:
    """Read what a model was trained to do, and its longest row; None where that is not known."""
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    document = read_object(path)
    require_packages(document, str(path))
    try:
        task: TaskConfig = TypeAdapter(TaskConfig).validate_python(document.get("task"))
        return task, int(document["length"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a task: {str(error).splitlines()[0]}", where=str(path),
                         remedy="fine-tune again into a new folder") from error
