"""The passages of a task that retrieves: opened for a training or for a trained model, and written next to it."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

from saucier.errors import InputError
from saucier.tasks.masked_retrieval import MaskedRetrievalTask
from saucier.tasks.open_questions import RetrievingTask
from saucier.tasks.retrieval_definitions import RefreshInProcess
from saucier.tasks.task import Encoding, Task

if TYPE_CHECKING:
    from saucier.retrieval.passages import OpenPassages
    from saucier.training.processes import Processes

INDEX = "index"
"""Where a run keeps its index until it is finished; `passages` is a second encoder there (`learns.passage_encoder`)."""
VERSIONS = "versions"
"""Where a run keeps the later versions of an index that is made again."""


def attach_passages(task: Task, encoding: Encoding, run: Path, processes: Processes) -> Task:
    """Return a task with its passages, where it reads some; an index that the run wrote already is used again.

    Raises `InputError` as `open_passages`, and for a second process next to several that train.
    """
    if not isinstance(task, RetrievingTask):
        return task
    from saucier.retrieval.index_versions import IndexVersions
    from saucier.retrieval.live_index import LiveSource
    from saucier.retrieval.passages import open_passages

    opened = open_passages(task.retrieval, task.layout(encoding), encoding, kept=run / INDEX)
    if not isinstance(task, MaskedRetrievalTask):
        return task.with_passages(opened)
    refresh = task.retrieval.refresh
    if isinstance(refresh, RefreshInProcess) and processes.world > 1:
        raise InputError("a second process makes the index for one trainer, and there are "
                         f"{processes.world}", where="task.retrieval.refresh.kind",
                         remedy="let the trainers make it: task.retrieval.refresh.kind=steps")
    versions = IndexVersions(run / VERSIONS, run, writes=processes.first)
    return task.with_passages(LiveSource.of(opened).refreshed(refresh, versions, run / INDEX))


def attach_trained(task: Task, encoding: Encoding, folder: Path) -> Task:
    """Return a task with the passages that stand next to its model, where it reads some. Raises `InputError`."""
    if not isinstance(task, RetrievingTask):
        return task
    from saucier.retrieval.live_index import LiveSource
    from saucier.retrieval.passages import open_trained

    opened = open_trained(task.retrieval, task.layout(encoding), encoding, folder)
    return task.with_passages(LiveSource.of(opened) if isinstance(task, MaskedRetrievalTask) else opened)


def find_passages(task: Task) -> OpenPassages | None:
    """Return the passages that a task reads, once they are attached; None where it reads none."""
    return cast("OpenPassages | None", getattr(task, "source", None))


def end_refresher(task: Task) -> AbstractContextManager[object]:
    """Return what ends the process that makes an index again, however training ends; nothing where there is none."""
    found = ExitStack()
    if isinstance(task, MaskedRetrievalTask):
        from saucier.retrieval.live_index import LiveSource

        assert isinstance(task.source, LiveSource), "it was attached"
        found.callback(task.source.live.refresher.close)
    return found


def finish_passages(task: Task) -> tuple[Task, tuple[str, ...]]:
    """Return a task with the index of its trained retriever, and what there is to say; else the task as it is."""
    if not isinstance(task, MaskedRetrievalTask):
        return task, ()
    from saucier.retrieval.live_index import LiveSource

    assert isinstance(task.source, LiveSource), "it was attached"
    source, line = task.source.finished()
    return task.with_passages(source), (line,)
