"""Measuring a model by its answers to labelled rows: its task as the files have it, labels under other names."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from saucier.arguments import COMMAND_LINE
from saucier.checkpoints.hub import TUNED, resolve_folder
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.folders.kinds import find_model_folder
from saucier.generation.decoding import Beams, Greedy
from saucier.jobs.evaluation.measurement import Evaluation, EvaluationOptions, join_notes
from saucier.jobs.finetuning.data import Splits, read_examples, read_splits, shorten_text, with_columns
from saucier.jobs.finetuning.passages import attach_trained
from saucier.jobs.finetuning.predict import PREDICTION_BATCH, answer_examples, encoding_of, task_length
from saucier.jobs.finetuning.results import score_answers
from saucier.jobs.finetuning.settings import read_finetuning
from saucier.opened import OpenModel
from saucier.recipes.source import Source, apply_overrides
from saucier.recipes.validation import validate_config
from saucier.tasks.build import build_task
from saucier.tasks.definitions import (
    Classification,
    Embedding,
    ManyLabels,
    MultipleChoice,
    QuestionAnswering,
    Tagging,
    TaskConfig,
)
from saucier.tasks.examples import Tally, describe_dropped, make_faults_error
from saucier.tasks.task import Task
from saucier.tasks.written.definitions import Written
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import describe_form

SHOWN_LABELS, LONGEST_LABEL = 6, 24
"""Labels that an error lists, and letters of each."""
Labelled = Classification | ManyLabels | Tagging
"""Tasks whose labels are the model's outputs."""


def for_task(opened: OpenModel, config: TaskConfig) -> OpenModel:
    """Return a model that was opened for a task, with its passages where it reads some. Raises `InputError`."""
    length = opened.length or task_length(opened)
    folder = find_model_folder(resolve_folder(opened.path))
    task = attach_trained(build_task(config), encoding_of(opened, length), folder)
    return replace(opened, task=task, length=length)


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A model that answers."""

    opened: OpenModel
    learned: bool = False
    """Whether its folder names the task; else the head alone says it."""

    @property
    def task(self) -> Task:
        """What it answers."""
        assert self.opened.task is not None, "for_task knows it"
        return self.opened.task

    def changed(self, options: EvaluationOptions) -> TaskModel:
        """Return the same with the task as the words and options say.

        Raises `InputError` for a task that the head is not for.
        """
        before: TaskConfig = self.task.config
        task = change_task(before, options.changes)
        writes = isinstance(task, Written)
        options.refuse_idle(f"model for {task.kind}", "baselines", "bad_rows", *(["beams"] if writes else []))
        if isinstance(task, Written) and options.beams is not None:
            search = Greedy() if options.beams == 1 else Beams(beams=options.beams)
            task = task.model_copy(update={"writing": task.writing.model_copy(update={"search": search})})
        head = self.opened.model.config.head
        classes = getattr(head, "classes", None)
        if isinstance(task, Labelled) and classes is not None:
            task = task if task.labels else task.model_copy(update={"labels": tuple(map(str, range(classes)))})
            if len(task.labels) != classes:
                raise InputError(f"task.labels: {len(task.labels)} names, and the model has {classes} outputs",
                                 where=COMMAND_LINE, remedy="name each of them, in their order")
        expected = build_task(task).required_head.kind
        if task.kind != before.kind and (head is None or expected != head.kind):
            raise InputError(f"task.kind: {task.kind} needs a head of the kind {expected}", where=COMMAND_LINE,
                             remedy=f"leave it out: this model is for {before.kind}")
        return replace(self, opened=for_task(self.opened, task))


class TaskChanges(Config):
    """What may be said of a task."""

    task: TaskConfig
    """Its kind, its columns, its labels."""


def change_task(before: TaskConfig, words: Sequence[str]) -> TaskConfig:
    """Return a task as `task.key=value` words say; another kind keeps the labels. Raises `InputError`."""
    source = Source(COMMAND_LINE, {"task": before.model_dump(mode="json")})
    apply_overrides(source, words, TaskChanges)
    after: TaskConfig = validate_config(source, TaskChanges).task
    labels = before.labels if isinstance(before, Labelled) else ()
    return after.model_copy(update={"labels": labels}) if isinstance(after, Labelled) and not after.labels else after


def evaluate_task(subject: TaskModel, files: Sequence[str], options: EvaluationOptions) -> Evaluation:
    """Let a model answer labelled rows, and score the answers; next to simple methods where training rows are known."""
    subject, tally, faults = subject.changed(options), Tally(), list[InputError]()
    splits = read_training_rows(subject.opened, options) if options.baselines or not files else None
    if files or splits is None:
        refuse_plain_text(subject.task, files, options.read)
        what, examples = ", ".join(files), read_labelled(subject.task, files, options, tally, faults)
    else:
        what, examples = ("its test file", splits.test) if splits.test else ("what it held out", splits.held_out)
    examples = examples[:options.limit]
    task, notes = fit_task(subject, examples)
    begin = time.perf_counter()
    found = answer_examples(replace(subject.opened, task=task), encodable(task, examples),
                            options.batch or PREDICTION_BATCH)
    seconds = time.perf_counter() - begin
    train = splits.train if splits is not None and options.baselines else ()
    scored = score_answers(task, what, examples, found.answers, train)
    cut = f"{found.cut:,} rows were too long and cut" if found.cut else ""
    return Evaluation(str(subject.opened.path), task.config.kind, scored.scores, join_notes(
        f"{len(examples):,} rows of {what}", show_row(task, examples[0]), notes, cut,
        (f"{count:,} {words}" for words, count in tally.items()), describe_dropped(faults),
        map(describe_form, find_sources(list(files), options.read))), seconds, len(examples), "rows", scored.baselines)


def read_labelled(task: Task, files: Sequence[str], options: EvaluationOptions, tally: Tally,
                  faults: list[InputError]) -> list[Any]:
    """Read the labelled rows of files; `tally` and `faults` take what was done to them, and what is wrong with rows.

    Raises `InputError` for rows that cannot be used, unless they are to be left out.
    """
    examples = read_examples(with_columns(task, options.columns), files, tally=tally, options=options.read,
                             faults=faults)
    if faults and options.bad_rows != "drop":
        raise make_faults_error(faults)
    return examples


def refuse_plain_text(task: Task, files: Sequence[str], read: ReadOptions) -> None:
    """Raise `InputError` for text without labels; tags alone may be in files of columns."""
    plain = [one for one in find_sources(list(files), read) if one.format == "txt"]
    if plain and not isinstance(task.config, Tagging):
        raise InputError(f"is plain text, and a model for {task.config.kind} is measured on labelled rows",
                         where=plain[0].name, remedy="give .jsonl, .csv, .tsv or .parquet; for texts alone there is "
                         "`saucier predict`, or `saucier generate --file`")


def read_training_rows(opened: OpenModel, options: EvaluationOptions) -> Splits:
    """Read the rows that a fine-tuning learned from. Raises `InputError` for a model that names none."""
    path = opened.path / TUNED
    if not path.is_file():
        raise InputError("simple methods learn from training rows, and this model names none", where="--baselines",
                         remedy="leave it out, or give the folder of a fine-tuning")
    settings = read_finetuning(path)
    return read_splits(build_task(change_task(settings.task, options.changes)), settings.data,
                       seed=settings.training.seed)


def show_row(task: Task, example: Any) -> str:
    """Show how a row was read: which text, and what is right."""
    return shorten_text(f"{example.place}: {task.format_prediction(example, task.gold(example))} ← "
                        f"{' ‖ '.join(example.texts)}")


def fit_task(subject: TaskModel, examples: Sequence[Any]) -> tuple[Task, str]:
    """Return the task as the files have it, and a line that says so: what a published head leaves open, labels.

    Raises `InputError` where no label of the files is one of the model's.
    """
    task = subject.task
    if not subject.learned and isinstance(task.config, Embedding | MultipleChoice | QuestionAnswering):
        task = task.fit_labels(examples)
        task.check_labels(examples)
    known = task.config.labels if isinstance(task.config, Labelled) else ()
    found = {label for one in examples for label in task.classes(one)}
    if not known or not found:
        return task, ""
    if not found & {*known}:
        names = rename_labels(known, found)
        if names is None:
            raise InputError(f"no label of the file ({list_labels(sorted(found))}) is one of the model's "
                             f"({list_labels(known)})", where=examples[0].place.file,
                             remedy=f"name the model's {len(known)} outputs in their order: "
                             f"task.labels=[{','.join(sorted(found)[:2])},...]")
        renamed = ", ".join(f"{old} = {new}" for old, new in zip(known, names, strict=True) if old != new)
        return task.with_config(labels=names), f"the model's outputs under the file's names: {renamed}"
    strange = [one for one in examples if {*task.classes(one)} - {*known}]
    unknown = list_labels(sorted(found - {*known}))
    return task, f"{len(strange):,} rows have labels that the model does not know ({unknown}), so it is wrong there" \
        if strange else ""


def rename_labels(known: Sequence[str], found: set[str]) -> tuple[str, ...] | None:
    """Return the model's outputs under a file's names: numbers, or the same words in other letters; None for none."""
    numbers = tuple(map(str, range(len(known))))
    if found <= {*numbers}:
        return numbers
    folded = {label.casefold(): label for label in found}
    names = tuple(folded.get(label.casefold(), label) for label in known)
    return names if found <= {*names} and len(folded) == len(found) else None


def list_labels(labels: Sequence[str]) -> str:
    """List the first labels, and say how many more there are."""
    more = f", and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
    short = (one if len(one) <= LONGEST_LABEL else f"{one[:LONGEST_LABEL - 1]}…" for one in labels[:SHOWN_LABELS])
    return ", ".join(short) + more


def encodable(task: Task, examples: Sequence[Any]) -> Sequence[Any]:
    """Return the examples without what is right where some of it is no output of the model: it has no number."""
    known = {*task.config.labels} if isinstance(task.config, Labelled) else set()
    if not known or all({*task.classes(one)} <= known for one in examples):
        return examples
    return [replace(one, **{"tags" if hasattr(one, "tags") else "label": None}) for one in examples]
