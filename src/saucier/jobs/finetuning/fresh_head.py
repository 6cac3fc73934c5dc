"""A published body under the head of a task, for `saucier.load(..., task=...)`: what a fine-tuning begins with, without
a file of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from saucier.checkpoints.hub import resolve_folder
from saucier.config.base import Config
from saucier.errors import InputError, expect, suggest_name
from saucier.folders.kinds import find_model_folder
from saucier.folders.sentence_classifier import modules_head
from saucier.jobs.finetuning.defaults import published_pick
from saucier.jobs.finetuning.start import build_task_model, labels_of_head
from saucier.jobs.finetuning.task_folder import read_task_labels
from saucier.model import Transformer
from saucier.opened import load_model_tokenizer
from saucier.tasks.build import TASKS, build_task
from saucier.tasks.definitions import MultipleChoice, TaskConfig, Texts
from saucier.tasks.task import RequiredHead
from saucier.tasks.written.definitions import Mixture
from saucier.text.tokenizer.tokenizer import Tokenizer

KINDS: dict[str, Any] = {cast(Any, kind).model_fields["kind"].default: kind for kind in TASKS
                         if issubclass(kind, Config) and "retrieval" not in kind.model_fields and kind is not Mixture}
"""Name of a task -> its settings; a mixture has no head of its own, and an answer from passages needs the passages."""


def read_task_request(task: object, labels: object) -> TaskConfig:
    """Return the settings of a task by name and labels. Raises `InputError` for an unknown task and for wrong labels.
    """
    expect(task, str, "task", f"give one of {', '.join(KINDS)}")
    if task not in KINDS:
        raise InputError(f"there is no task {str(task)[:40]!r}", where="task", remedy=suggest_name(str(task), [*KINDS]))
    kind, names = KINDS[str(task)], check_labels(labels)
    if "labels" not in kind.model_fields:
        if names:
            raise InputError(f"{task} has no labels", where="labels", remedy="leave them out")
        return cast(TaskConfig, kind())
    if len(names) < 2 and kind is not MultipleChoice:
        raise InputError(f"{task} needs the names of its labels, at least two", where="labels",
                         remedy='give them in the order of the outputs: labels=("bad", "good")')
    return cast(TaskConfig, kind(labels=names))


def check_labels(labels: object) -> tuple[str, ...]:
    """Return the labels as a tuple. Raises `InputError` for what is no list of different names."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InputError(f"is {type(labels).__name__} {str(labels)[:40]!r}", where="labels",
                         remedy='give a list of names: labels=("bad", "good")')
    for place, one in enumerate(labels, start=1):
        if not isinstance(one, str) or not one.strip():
            raise InputError(f"label {place} is {one!r}", where="labels", remedy="give each label a name")
        if one in labels[:place - 1]:
            raise InputError(f"{one!r} is there twice", where="labels", remedy="give each label once")
    return tuple(labels)


def put_task_head(other: Transformer, place: str | Path, task: TaskConfig) -> Transformer:
    """Return a loaded model under the head of a task; a head that knows the same labels is kept.

    `place`: where it was loaded from. What is new is drawn from seed 0. Raises `InputError` for a body that such a head
    does not fit.
    """
    if other.provenance.rewrites:
        raise InputError("an adapter is next to the model's weights, which a new head would lose", where=str(place),
                         remedy="merge it first, with saucier merge")
    if isinstance(task, Texts):
        task = task.model_copy(update={"pick": published_pick(str(place))})
    required, before, document = build_task(task).required_head, other.provenance.origin, other.provenance.document
    other.restore_stored()
    trained = read_task_labels(find_model_folder(resolve_folder(place)))
    keeps = labels_of_head(other, required, trained, str(place)) == required.labels
    model, _ = build_task_model(other, required, find_tokenizer(place, required), start=Path(place),
                                fresh_head=not keeps)
    origin, labels = model.provenance.origin, model.provenance.document
    if modules_head(model, document, None) is not None:  # so that it is saved as the body was published
        model.provenance = replace(model.provenance, document={**document, **labels})
    if origin is not None and before is not None:
        model.provenance = replace(model.provenance, origin=replace(origin, tokenizer=before.tokenizer))
    return model


def find_tokenizer(place: str | Path, required: RequiredHead) -> Tokenizer | None:
    """Return the tokenizer of a model, of its source side where the head does not write; None where it has none."""
    with suppress(InputError):
        found = load_model_tokenizer(place)
        return found if required.kind == "language" else found.source_side()
    return None
