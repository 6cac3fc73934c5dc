"""The passages of a task that retrieves: opened for a training or for a trained model, and written next to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from saucier.tasks.open_questions import RetrievingTask
from saucier.tasks.task import Encoding, Task

if TYPE_CHECKING:
    from saucier.retrieval.passages import OpenPassages

INDEX = "index"
"""Where a run keeps its index until it is finished; `passages` is a second encoder there (`learns.passage_encoder`)."""


def attach_passages(task: Task, encoding: Encoding, run: Path) -> Task:
    """Return a task with its passages, where it reads some; an index that the run wrote already is used again.

    Raises `InputError` as `open_passages`.
    """
    if not isinstance(task, RetrievingTask):
        return task
    from saucier.retrieval.passages import open_passages

    return task.with_passages(open_passages(task.retrieval, task.layout(encoding), encoding, kept=run / INDEX))


def attach_trained(task: Task, encoding: Encoding, folder: Path) -> Task:
    """Return a task with the passages that stand next to its model, where it reads some. Raises `InputError`."""
    if not isinstance(task, RetrievingTask):
        return task
    from saucier.retrieval.passages import open_trained

    return task.with_passages(open_trained(task.retrieval, task.layout(encoding), encoding, folder))


def find_passages(task: Task) -> OpenPassages | None:
    """Return the passages that a task reads, once they are attached; None where it reads none."""
    return cast("OpenPassages | None", getattr(task, "source", None))
