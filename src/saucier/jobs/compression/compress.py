"""The whole compression: check, measure the teacher, then step by step make a model and measure it.

One that was stopped goes on where it was, and a finished step is never repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from saucier.checkpoints.hub import resolve_folder
from saucier.devices import choose_real_device
from saucier.errors import InputError
from saucier.files import read_object, remove_path, write_json, write_text
from saucier.folders.kinds import find_model_folder
from saucier.jobs.compression.measurement import (
    Measured,
    Subject,
    answer_splits,
    make_encoding,
    measure_size,
    measure_splits,
    measured_splits,
)
from saucier.jobs.compression.outcome import (
    MEASURED,
    OUTCOME_FILE,
    TEACHER,
    Compressed,
    compare_front,
    judge,
    measured_lines,
    read_compressed,
    read_measured,
    write_compression_report,
)
from saucier.jobs.compression.settings import (
    COMPRESSION_FILE,
    Compression,
    Node,
    deciding_settings,
    plan_models,
    read_compression,
)
from saucier.jobs.compression.steps import NOTES, Work, check_steps, run_step
from saucier.jobs.compression.timing import measure_cost
from saucier.jobs.finetuning.data import Splits, read_splits
from saucier.jobs.finetuning.predict import open_task, read_known_task
from saucier.jobs.finetuning.results import prediction_row
from saucier.jobs.finetuning.task_teacher import OUTPUTS
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import Job, JobKind, open_or_create, write_settings
from saucier.jobs.run.passport import file_digest, start_passport
from saucier.opened import OpenModel
from saucier.tasks.build import build_task
from saucier.tasks.prediction_files import write_predictions
from saucier.tasks.task import Task
from saucier.text.reading.sources import find_sources
from saucier.training.processes import join_processes

COMPRESSION = JobKind(
    settings=COMPRESSION_FILE, last=OUTCOME_FILE,
    header="# This compression, with every value. `saucier compress FOLDER` goes on with it.\n",
    read=read_compression, essential=deciding_settings, other="another compression", foreign="no compression")


def compress(settings: Compression, out: Path, *, quiet: bool = False, said: Sequence[str] = ()) -> Compressed:
    """Take a model through the steps, into a folder, or go on where that stopped.

    `said`: lines that a person should read first. Raises `InputError` for what cannot be done, before anything is
    trained; `WorkError` when a step fails or is interrupted (after saving).
    """
    with join_processes() as processes:
        if processes.world > 1:
            raise InputError("a compression runs in one process", where="WORLD_SIZE",
                             remedy="start it without torchrun")
        console = Console(silent=quiet)
        console.heading(f"{settings.name}: {settings.model} → {out}")
        if open_or_create(out, settings, COMPRESSION) == "finished":
            console.say("this compression is finished; to do it again, give another folder with --out", style="green")
            return read_compressed(out)
        job = Job(out, COMPRESSION, console, processes,
                  start_passport(out, settings.name, {"seed": settings.seed}, Path(settings.model)))
        with console.stage("check"):
            console.say(*said)
            if settings.measure.device is not None:
                choose_real_device(settings.measure.device)
            opened, splits = open_teacher(settings)
            assert opened.length is not None, "open_task knows it"
            work = Work(settings, splits, opened.length)
            check_steps(work, opened)
            del opened
        write_settings(out, settings, COMPRESSION)
        sources = find_sources([*settings.data.train, *settings.data.held_out, *settings.data.test])
        job.note(data={source.name: file_digest(source.path) for source in sources})
        job.passport.write(out)
        work_through(job, work)
        found = read_compressed(out)
        found = replace(found, pairs=compare_front(found, work.splits))
        with console.stage("report"):
            console.say(str(write_compression_report(found)))
        job.close()
        write_json(out / OUTCOME_FILE, found.to_dict())
        remove_path(out / OUTPUTS)
        return found


def open_teacher(settings: Compression) -> tuple[OpenModel, Splits]:
    """Open the model that a chain begins with, and read the rows by its task.

    Raises `InputError` for a model without a task, for one that learned other labels, and for rows that cannot be used.
    """
    known = read_known_task(settings.model)
    splits = None if known is None else read_rows(settings, known)  # rows are refused before torch reads weights
    opened = open_task(settings.model)
    assert opened.task is not None, "open_task knows it"
    if splits is None:  # no training has seen yet how long answers are
        splits = read_rows(settings, opened.task)
        encoded = splits.task.encode(splits.train, make_encoding(opened))
        splits = replace(splits, task=splits.task.fit_lengths(encoded))
    return opened, splits


def read_rows(settings: Compression, task: Task) -> Splits:
    """Read the rows by a task. Raises `InputError` for labels that the teacher does not have."""
    try:
        return read_splits(build_task(task.config), settings.data, seed=settings.seed)
    except InputError as error:
        labels = getattr(task.config, "labels", ())
        wrong = next((line for line in str(error).splitlines() if "is not among the" in line), None)
        if not labels or wrong is None:
            raise
        listed = ", ".join(labels[:4]) + (", ..." if len(labels) > 4 else "")
        raise InputError(f"its labels are {listed}, and the rows have others: {wrong.partition(';')[0]}",
                         where=settings.model, remedy="give rows of the task that it learned, or fine-tune it on these "
                         "first") from error


def work_through(job: Job, work: Work) -> None:
    """Measure the teacher, and make every model, until a bound breaks or the time is over."""
    teacher, place = Teacher(find_model_folder(resolve_folder(work.settings.model)), work), job.path / TEACHER
    with job.console.stage(TEACHER):
        if not (place / MEASURED).is_file():
            measure_model(job, work, place, teacher.place, (teacher.subject, teacher.subject))
        job.console.say(*measured_lines(read_measured(place)))
    for node in plan_models(work.settings):
        make_models(job, work, node, teacher, teacher.place)


def make_models(job: Job, work: Work, node: Node, teacher: Teacher, before: Path) -> None:
    """Make a model of another one and measure it, unless that is done; then what is made of it, if it keeps enough."""
    place, budget = job.path / "steps" / node.name, work.settings.budget
    with job.console.stage(node.name):
        if not (place / MEASURED).is_file():
            if budget is not None and time.perf_counter() - work.begun > budget:
                return
            made = run_step(work, node.step, before, place)
            measure_model(job, work, place, made, (answer_splits(made, work.splits), teacher.subject))
        found = read_measured(place)
        verdict = judge(found.kept, work.settings.keep)
        job.console.say(*measured_lines(found))
        job.console.say(verdict.line, style="green" if verdict.holds else "red")
    for child in node.children if verdict.holds else ():
        make_models(job, work, child, teacher, place / "model")


@dataclass(slots=True)
class Teacher:
    """The model that the chain began with; its answers are asked for once, and where they are needed."""

    place: Path
    work: Work
    known: Subject | None = None

    @property
    def subject(self) -> Subject:
        """The model with its answers."""
        self.known = self.known or answer_splits(self.place, self.work.splits)
        return self.known


def measure_model(job: Job, work: Work, place: Path, model: Path, pair: tuple[Subject, Subject]) -> None:
    """Measure a model next to the teacher, and write answers and figures; the figures come last."""
    subject, splits = pair[0], work.splits
    for name, rows in measured_splits(splits).items():
        write_predictions(place / "predictions" / f"{name}.jsonl",
                          (prediction_row(splits.task, *one) for one in zip(rows, subject.answers[name], strict=True)))
    found = Measured(
        name=place.name, size=measure_size(model, subject, splits), splits=measure_splits(*pair, splits),
        cost=measure_cost(model, *pair, splits, job.path / COMPRESSION_FILE, work.settings.measure),
        notes=tuple(read_object(place / NOTES).get("notes", ())))
    write_text(place / MEASURED, found.model_dump_json(indent=2) + "\n")
