"""The teacher of a fine-tuning: does it know the task's labels, and how does it read the same rows?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from saucier.checkpoints.hub import resolve_folder
from saucier.checkpoints.published_folder import read_generation_defaults
from saucier.errors import InputError
from saucier.files import read_object
from saucier.folders.kinds import find_model_folder
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.start import labels_of_head
from saucier.jobs.finetuning.task_folder import read_task_labels
from saucier.jobs.run.teacher import Teacher, open_teacher
from saucier.objectives.config.distillation import Distillation, SoftTargets, TextVectors
from saucier.objectives.distillation import TEACHER
from saucier.opened import room
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.task import Encoding, RequiredHead
from saucier.text.tokenizer.tokenizer import load_tokenizer


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
