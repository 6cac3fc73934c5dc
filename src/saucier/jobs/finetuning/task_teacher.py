"""The teacher of a fine-tuning: does it know the task's labels, and how does it read the same rows?"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.published_names import read_generation_defaults
from saucier.devices import AutocastDtype, autocast, move_batch
from saucier.errors import InputError
from saucier.files import read_object
from saucier.folders.kinds import find_model_folder
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.start import labels_of_head
from saucier.jobs.finetuning.task_folder import read_task_labels
from saucier.jobs.run.console import show_progress
from saucier.jobs.run.teacher import Teacher, open_teacher
from saucier.objectives.config.distillation import Distillation, SoftTargets, TextVectors
from saucier.objectives.distillation import TEACHER, Distilled
from saucier.objectives.stored_outputs import OutputStore, RowKeys
from saucier.opened import room
from saucier.plain import format_bytes, format_duration
from saucier.tasks.encoded_examples import CollateExamples, EncodedExamples, order_by_length
from saucier.tasks.task import Encoding, RequiredHead
from saucier.text.tokenizer.tokenizer import load_tokenizer
from saucier.training.processes import Processes

OUTPUTS = "teacher-outputs"
"""Where a run keeps what its teacher gives, until it is finished."""


@dataclass(frozen=True, slots=True)
class TaskTeacher:
    """A teacher, and the rows that both read."""

    teacher: Teacher
    rows: Mapping[str, EncodedExamples]
    """The rows of each part of the data, with the teacher's own beside them where it reads them otherwise."""
    aligned: bool
    """Whether both read the same tokens."""


def open_task_teacher(config: Distillation, splits: Splits, encoded: Mapping[str, EncodedExamples],
                      encoding: Encoding) -> TaskTeacher:
    """Load the teacher of a task, and let it read the rows.

    Raises `InputError` for one that has no head for the task or other labels, and for rows that it cannot read.
    """
    teacher = open_teacher(config)
    if any(isinstance(one, SoftTargets | TextVectors) for one in config.losses):
        check_labels(teacher, splits.task.required_head)
    tokenizer = splits.task.extend_tokenizer(load_tokenizer(Path(teacher.place)))
    folder = find_model_folder(resolve_folder(teacher.place))
    length = min(encoding.length, room(teacher.model.config, encoding.length, tokenizer.handling.max_length))
    start = read_generation_defaults(folder, read_object(folder / "config.json")).get("decoder_start_token_id")
    reads = Encoding(tokenizer, length, teacher.model.config, start)
    rows, aligned = dict(encoded), True
    for name, examples in splits.named().items():
        theirs = splits.task.encode(examples, reads)
        rows[name], same = add_rows(encoded[name], theirs, teacher.place)
        aligned = aligned and same
    return TaskTeacher(teacher, rows, aligned)


def check_labels(teacher: Teacher, required: RequiredHead) -> None:
    """Raise `InputError` for a teacher without the task's head, or with other labels or another order of them."""
    learned = read_task_labels(find_model_folder(resolve_folder(teacher.place)))
    known = labels_of_head(teacher.model, replace(required, pick=None), learned, teacher.place)
    where = f"distillation.teacher: {teacher.place}"
    if known is None:
        head = teacher.model.config.head
        raise InputError(f"the task needs a head of kind {required.kind}, and the teacher has "
                         f"{'none' if head is None else head.kind}", where=where,
                         remedy="fine-tune the teacher on this task first, or learn hidden_states alone")
    if known != required.labels:
        raise InputError(f"the teacher's labels are {', '.join(known)}; those of the task are "
                         f"{', '.join(required.labels)}", where=where,
                         remedy="give task.labels in the teacher's order, or a teacher of the same labels")


def add_rows(own: EncodedExamples, theirs: EncodedExamples, where: str) -> tuple[EncodedExamples, bool]:
    """Put a teacher's rows beside the student's where it reads them otherwise; say whether it reads the same tokens.

    Raises `InputError` where there are not as many rows.
    """
    def equal(name: str) -> bool:
        first, second = own.sequences.get(name), theirs.sequences.get(name)
        if first is None or second is None:
            return first is second
        return np.array_equal(first.values, second.values) and np.array_equal(first.offsets, second.offsets)

    read = [name for name in dict.fromkeys([*own.sequences, *theirs.sequences]) if name != "labels"]
    aligned = all(map(equal, [name for name in read if name != "token_type_ids"]))
    if aligned and equal("token_type_ids"):
        return own, True
    if not np.array_equal(own.example_numbers, theirs.example_numbers) or own.group != theirs.group:
        raise InputError("the teacher's tokenizer cuts the texts into other rows", where=where,
                         remedy="use a student with the teacher's tokenizer")
    if theirs.characters is not None:
        raise InputError("the teacher reads characters, and the student other tokens", where=where,
                         remedy="use a student with the teacher's tokenizer")
    rows: dict[str, Any] = {f"{TEACHER}{name}": theirs.sequences[name] for name in read if name in theirs.sequences}
    return replace(own, sequences={**own.sequences, **rows}), aligned


@dataclass(slots=True)
class StoredRows:
    """What a teacher gives for the rows of a training, and what of it must be computed yet."""

    store: OutputStore
    missing: Sequence[dict[str, Any]]
    """What the teacher reads, batch by batch."""
    rows: int
    bytes: int
    dtype: AutocastDtype

    def complete(self, objective: Distilled, device: torch.device, processes: Processes) -> str:
        """Compute what is missing, each process its share; return a line for a person."""
        begun, own = time.perf_counter(), self.missing[processes.rank::processes.world]
        watched = show_progress(own, "teacher") if processes.first else own
        with autocast(self.dtype, device):
            self.store.write(objective.passes_to_store(watched))
        processes.wait()
        self.store = OutputStore.open(self.store.folder, self.store.names, self.store.cast)
        done = "all of it was there" if not self.missing else \
            f"computed in {format_duration(time.perf_counter() - begun)}"
        cast_words = "" if self.store.cast is None else ", rounded to 16 bits"
        return (f"what the teacher gives for {self.rows:,} rows: {format_bytes(self.bytes)}{cast_words} in "
                f"{self.store.folder}, {done}")


def plan_stored_rows(objective: Distilled, model: nn.Module, teacher: TaskTeacher, *, folder: Path, batch: int,
                     dtype: AutocastDtype) -> StoredRows:
    """Find out what is stored of a teacher, and what is missing; nothing is written.

    `folder`: where outputs of any teacher are. Raises `InputError` for more bytes than the limit.
    """
    settings, device = objective.config.stored, teacher.teacher.model.device
    assert settings is not None, "it is asked for"
    whose = f"{teacher.teacher.digest} {teacher.teacher.model.config.model_dump_json()} {objective.reads} {dtype} " \
        f"{settings.cast}"
    number_format = None if settings.cast is None else cast(torch.dtype, getattr(torch, settings.cast))
    store = OutputStore.open(folder / hashlib.sha256(whose.encode()).hexdigest()[:16], objective.reads, number_format)
    read = [objective.read_inputs(model, move_batch(CollateExamples()(units, seed=0, step=0), device))
            for part in ("train", "held-out") for units in order_by_length(teacher.rows[part], batch)]
    known = [RowKeys.of(inputs) for inputs in read]
    missing = [inputs for inputs, rows in zip(read, known, strict=True) if store.lacks(rows)]
    if missing and not store.columns:  # one batch shows the shapes
        with autocast(dtype, device):
            for found in objective.passes_to_store(missing[:1]):
                store.describe(found, RowKeys.of(found.inputs))
    size = store.count_bytes(known)
    if size > settings.limit:
        raise InputError(f"what the teacher gives for {sum(len(one.keys) for one in known):,} rows takes "
                         f"{format_bytes(size)}, and the limit is {format_bytes(settings.limit)}",
                         where="distillation.stored",
                         remedy=f"give distillation.stored.limit={size}, cast: float16, or leave stored out")
    return StoredRows(store, missing, sum(len(one.keys) for one in known), size, dtype)
