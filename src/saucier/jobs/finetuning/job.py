"""A fine-tuning under way: its rows are encoded, its model is built, and it is trained, to the end or up to a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saucier.adaptation.rewrite import rewrite_and_report
from saucier.checkpoints.hub import TUNED
from saucier.checkpoints.steps import latest_checkpoint, usable_checkpoint
from saucier.config import parameters
from saucier.devices import choose_autocast_dtype, choose_device
from saucier.jobs.finetuning.data import (
    LONGEST_ROW,
    Splits,
    describe_splits,
    describe_unknown_tokens,
    read_splits,
    show_examples,
)
from saucier.jobs.finetuning.measuring import HeldOutRows, build_evaluator
from saucier.jobs.finetuning.passages import attach_passages, end_refresher, find_passages, finish_passages
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning
from saucier.jobs.finetuning.start import Start, build_task_model, describe_pooling
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.jobs.finetuning.task_teacher import (
    OUTPUTS,
    StoredRows,
    TaskTeacher,
    open_task_teacher,
    plan_stored_rows,
)
from saucier.jobs.run.folder import Job, JobKind
from saucier.jobs.run.passport import file_digest
from saucier.jobs.run.teacher import DIGEST, describe_distillation, refuse_compiling
from saucier.model import Transformer
from saucier.objectives.config.distillation import Distillation
from saucier.objectives.contrastive import PASSAGES
from saucier.objectives.distillation import Distilled, build_distilled
from saucier.objectives.pruning import keep_pruned
from saucier.opened import room
from saucier.plain import format_duration
from saucier.table import Table
from saucier.tasks.build import build_task
from saucier.tasks.encoded_examples import CollateExamples, EncodedExamples
from saucier.tasks.task import Encoding
from saucier.text.reading.sources import find_sources
from saucier.text.rows.batch import Batches
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.hyperparameters import Training
from saucier.training.loop import TrainingResult, train
from saucier.training.progress import Reporter
from saucier.training.resume import load_modules, load_weights_into
from saucier.training.update import TrainingData

RatePoints = Sequence[tuple[float, float]]
"""Learning rates, each with the mean of the loss there."""


def deciding_settings(settings: Finetuning, whole: bool = False) -> dict[str, Any]:
    """Return what decides the outcome of a fine-tuning; the kind of task first, as another kind has other keys."""
    decides = settings.model_dump(mode="json", exclude={"name": True, "training": {"reporters"}})
    if not whole:  # they measure what is learned
        del decides["metrics"]
    return {"task.kind": settings.task.kind} | decides


FINETUNING = JobKind(
    settings=TUNED, last="scores.json",
    header="# This fine-tuning, with every value. `saucier finetune FOLDER` goes on with it.\n",
    read=read_finetuning, essential=deciding_settings, other="another fine-tuning", foreign="no fine-tuning")


@dataclass(slots=True)
class FinetuningJob:
    """A fine-tuning under way."""

    run: Job
    settings: Finetuning
    folder: TaskFolder
    start: Start
    splits: Splits = field(init=False)
    encoded: dict[str, EncodedExamples] = field(init=False)
    encoding: Encoding = field(init=False)
    model: Transformer = field(init=False)
    teacher: TaskTeacher | None = None
    """Whom it learns from, once the model is there."""
    stored: StoredRows | None = None
    """What the teacher gives, where that is kept."""
    data_lines: list[str] = field(default_factory=list)
    """Lines printed about the data."""
    rates: RatePoints = ()
    """What a range test measured."""
    trials: Table | None = None
    """What a search tried."""
    teacher_lines: list[str] = field(default_factory=list)
    """Lines printed about the teacher."""
    second: Transformer | None = None
    """A second model that was trained with it: an encoder of passages."""

    def measured(self, split: str) -> EncodedExamples:
        """Return the rows of a part of the data as the objective reads them: a teacher may read its own."""
        return (self.encoded if self.teacher is None else self.teacher.rows)[split]


def read_data(job: FinetuningJob, splits: Splits | None) -> None:
    """Read the files, encode them, and show what will be learned."""
    settings = job.settings
    job.splits = splits or read_splits(build_task(settings.task), settings.data, seed=settings.training.seed)
    known, task = job.start.tokenizer(job.splits), job.splits.task
    tokenizer = task.extend_tokenizer(known if task.required_head.kind == "language" else known.source_side())
    job.encoding = choose_encoding(settings, job.start, tokenizer)
    attached = attach_passages(task, job.encoding, job.folder.path, job.run.processes)
    job.splits = replace(job.splits, task=attached)
    job.encoded = {name: job.splits.task.encode(examples, job.encoding)
                   for name, examples in job.splits.named().items()}
    job.splits = replace(job.splits, task=job.splits.task.fit_lengths(job.encoded["train"]))
    job.data_lines = [*describe_splits(job.splits, job.encoded, job.encoding.length),
                      *describe_unknown_tokens(job.splits, job.encoded["train"], tokenizer)]
    job.run.console.say(*job.data_lines)
    job.run.console.note(*show_examples(job.splits, job.encoded["train"], tokenizer))
    sources = find_sources([*settings.data.train, *settings.data.held_out, *settings.data.test])
    job.run.note(data={source.name: file_digest(source.path) for source in sources})
    if (passages := find_passages(job.splits.task)) is not None:
        job.run.note(data={**job.run.passport.data, **passages.digests()})


def prepare_teacher(job: FinetuningJob) -> None:
    """Load the teacher, if there is one, and see that the model can learn from it; before anything is written."""
    config = job.settings.distillation
    if config is None:
        return
    if job.teacher is None:
        job.teacher = open_task_teacher(config, job.splits, job.encoded, job.encoding)
        job.run.note(data={**job.run.passport.data, DIGEST: job.teacher.teacher.digest})
    objective = learn_from_teacher(job, job.teacher, config, plan_batches(job)[1].steps)
    objective.bind(job.model)
    refuse_compiling(objective, compiles=job.settings.training.compile)
    if config.stored is not None and job.stored is None:
        dtype = choose_autocast_dtype(job.settings.training.dtype, job.model.device)[0]
        folder = job.folder.path / OUTPUTS if config.stored.folder is None else Path(config.stored.folder)
        job.stored = plan_stored_rows(objective, job.model, job.teacher, folder=folder,
                                      batch=job.settings.training.batch, dtype=dtype)
    job.teacher_lines = [*describe_distillation(objective, job.teacher.teacher)]
    job.run.console.say(*job.teacher_lines)


def store_outputs(job: FinetuningJob) -> None:
    """Let the teacher read all rows once, where what it gives is to be kept."""
    if job.stored is None or job.teacher is None or job.settings.distillation is None:
        return
    objective = build_distilled(job.splits.task.objective, job.settings.distillation, job.teacher.teacher.model,
                                body=job.model.config, aligned=job.teacher.aligned)
    with job.run.console.stage("teacher"):
        line = job.stored.complete(objective, job.model.device, job.run.processes)
        job.teacher_lines.append(line)
        job.run.console.say(line)


def choose_encoding(settings: Finetuning, start: Start, tokenizer: Tokenizer) -> Encoding:
    """Return how rows are made for the model that the fine-tuning begins with."""
    body = start.body(tokenizer)
    length = room(body, settings.training.length or LONGEST_ROW, tokenizer.handling.max_length,
                  ahead=getattr(settings.tuning, "length", 0))
    return Encoding(tokenizer, length, body, start.generation_defaults.get("decoder_start_token_id"))


def prepare_model(job: FinetuningJob) -> None:
    """Build the model, and say what of it is new."""
    settings, tokenizer = job.settings, job.encoding.tokenizer
    job.model, adopted = build_task_model(
        job.start.model(tokenizer), job.splits.task.required_head, tokenizer, start=job.start.place,
        seed=settings.training.seed, fresh_head=settings.fresh_head, mix=settings.mix, device=choose_device("auto"))
    job.model.generation = {**job.model.generation, **job.splits.task.generation_settings(job.encoding)}
    job.run.console.say(f"{parameters(job.model.config):,} parameters",
                        *filter(None, [describe_pooling(job.model, settings)]))
    grown = f"the tokenizer has {tokenizer.vocab_size:,} ids, so there are new rows in"
    for what, names in (("new", adopted.new), (grown, adopted.wider), ("left behind", adopted.left)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            job.run.console.say(f"{what}: {', '.join(names[:3])}{more}")
    if settings.tuning is not None:
        job.run.console.say(*rewrite_and_report(job.model, settings.tuning, seed=settings.training.seed))
    prepare_teacher(job)


def plan_batches(job: FinetuningJob) -> tuple[Batches[Any], Training]:
    """Return the batches of the training rows, and the settings of the loop."""
    settings, rows = job.settings.training, job.measured("train")
    batches = job.splits.task.batches(rows, settings.batch, seed=settings.seed)
    return batches, settings.training(batches.steps_per_epoch, int(rows.lengths.max()))


def learn_from_teacher(job: FinetuningJob, found: TaskTeacher, config: Distillation, steps: int) -> Distilled:
    """Return the task's objective with a teacher. Raises `InputError` as `build_distilled`."""
    return build_distilled(job.splits.task.objective, config, found.teacher.model, body=job.model.config,
                           aligned=found.aligned, steps=steps, seed=job.settings.training.seed,
                           stored=None if job.stored is None else job.stored.store)


def plan_training(job: FinetuningJob) -> tuple[TrainingData, Training]:
    """Return what is learned from, and the settings of the loop."""
    batches, training = plan_batches(job)
    objective, settings = job.splits.task.objective, job.settings
    if job.teacher is not None and settings.distillation is not None:
        objective = learn_from_teacher(job, job.teacher, settings.distillation, training.steps)
    objective = keep_pruned(objective, settings.pruning, training.steps)
    objective.bind(job.model)
    return TrainingData(batches, CollateExamples(), objective), training


def train_task(job: FinetuningJob, *, share: float = 1.0, reporters: list[Reporter] | None = None) -> TrainingResult:
    """Train, or a share of it, from where it stopped; then the model has the weights that are chosen."""
    data, training = plan_training(job)
    rows = HeldOutRows(job.splits.held_out, job.encoded["held-out"], job.encoding)
    evaluate = build_evaluator(job.splits.task, rows, job.settings.training, job.run.processes,
                               objective=data.objective, measured=job.measured("held-out"))
    identity = job.settings.model_dump(mode="json", exclude={"metrics": True, "training": {"reporters"}})
    with end_refresher(job.splits.task):
        result = train(job.model, data, training, run_folder=job.folder.path,
                       reporters=job.run.reporters(training) if reporters is None else reporters, evaluate=evaluate,
                       recipe=identity | {"data": job.run.passport.data},
                       until=max(1, round(share * training.steps)))
    chosen = usable_checkpoint if job.settings.training.early_stop else newest_checkpoint
    checkpoint = chosen(job.folder.path)
    load_weights_into(job.model, checkpoint)
    load_modules(data.objective.modules, checkpoint)
    second = data.objective.modules.get(PASSAGES)
    job.second = second.eval() if isinstance(second, Transformer) else None
    if share == 1.0:
        job.model = data.objective.finished(job.model)
        task, lines = finish_passages(job.splits.task)
        job.splits, job.data_lines = replace(job.splits, task=task), [*job.data_lines, *lines]
        job.run.console.say(*lines)
    return result


def newest_checkpoint(folder: Path) -> Path:
    """Return the newest whole checkpoint, whatever was measured on the way."""
    return latest_checkpoint(folder) or usable_checkpoint(folder)


def describe_training(job: FinetuningJob, result: TrainingResult) -> str:
    """Say how long training took."""
    rows = result.steps * job.settings.training.batch
    speed = f", {rows / result.seconds:.0f} rows/s" if result.seconds and result.reason == "done" else ""
    return f"{result.steps:,} steps in {format_duration(result.seconds)}{speed}, in {result.dtype}"
