"""The whole fine-tuning: read, show, prepare, train, score, save. A run that was stopped goes on where it was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from saucier.adaptation.rewrite import rewrite_and_report
from saucier.checkpoints.steps import FOLDER, usable_checkpoint
from saucier.config import parameters
from saucier.config.registry import list_versions
from saucier.devices import AutocastDtype, choose_device
from saucier.files import remove_path, write_atomically, write_json
from saucier.folders.save import save_bare
from saucier.jobs.finetuning.data import Splits, describe_splits, describe_unknown_tokens, read_splits, show_examples
from saucier.jobs.finetuning.predict import FINETUNING, TaskFolder, write_task
from saucier.jobs.finetuning.results import (
    SplitScores,
    hardest_errors,
    prediction_row,
    score_answers,
    write_finetuning_report,
)
from saucier.jobs.finetuning.settings import LONGEST_ROW, Finetuning
from saucier.jobs.finetuning.start import Start, build_task_model, open_start
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import Job, open_or_create, write_settings
from saucier.jobs.run.passport import file_digest, start_passport
from saucier.model import Transformer
from saucier.opened import room
from saucier.plain import format_duration
from saucier.tasks.build import build_task, missing_extra
from saucier.tasks.encoded_examples import CollateExamples, EncodedExamples, order_by_length
from saucier.tasks.prediction_files import write_predictions
from saucier.tasks.task import Encoding, Predictor
from saucier.text.reading.sources import find_sources
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.evaluation import Evaluator
from saucier.training.loop import TrainingResult, train
from saucier.training.processes import join_processes
from saucier.training.reporters import check_reporters
from saucier.training.resume import load_weights_into
from saucier.training.update import TrainingData


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
    data_lines: list[str] = field(default_factory=list)
    """Lines printed about the data."""


def finetune(settings: Finetuning, out: Path, *, quiet: bool = False) -> TaskFolder:
    """Fine-tune into a folder, or go on where that stopped.

    Under torchrun every process calls this; the first one writes and speaks.
    Raises `InputError` for settings, files or rows that are wrong; `WorkError` when training fails or is interrupted
    (after saving).
    """
    with join_processes() as processes:
        processes.write_once(partial(open_or_create, out, settings, FINETUNING))
        folder = TaskFolder(out)
        console = Console(silent=quiet or not processes.first)
        console.heading(f"{settings.task.kind}: {settings.model} → {out}")
        if folder.is_finished:
            console.say("this fine-tuning is finished; give another folder with --out to do it again", style="green")
            if processes.first:
                remove_path(folder.path / FOLDER)  # where it was killed while they were removed
            return folder
        check_reporters(settings.training.training(1, 1))
        start = open_start(settings)
        run = Job(out, FINETUNING, console, processes,
                  start_passport(out, settings.name, {"training": settings.training.seed}, start.place))
        run.passport = run.passport.in_environment(**list_versions(settings.as_dict()))
        job = FinetuningJob(run, settings, folder, start)
        with console.stage("data"):
            read_data(job)
        with console.stage("model"):
            prepare_model(job)
        if processes.first:
            if not FINETUNING.is_started(out):  # now only: rows that are refused leave no folder
                write_settings(out, settings, FINETUNING)
            run.passport.write(out)
        with console.stage("train"):
            trained = train_task(job)
        processes.write_once(partial(score_and_save, job, trained))
        return folder


def score_and_save(job: FinetuningJob, trained: TrainingResult) -> None:
    """Score every part, write the model and the report, and finish the folder: on the process that writes."""
    with job.run.console.stage("score"):
        found = [score_split(job, name, trained) for name in job.encoded if name != "train"]
    with job.run.console.stage("save"):
        write_atomically(job.folder.model, partial(save_task_model, job))
        job.run.console.say(str(write_finetuning_report(job.folder.path, job.settings, job.splits.task, found,
                                                        job.data_lines)))
    job.run.passport = job.run.passport.in_environment(dtype=trained.dtype)
    job.run.close()
    # with scores.json it is a finished one; the checkpoints have done their work
    write_json(job.folder.scores, {"step": trained.steps, **{one.split: one.as_json() for one in found}})
    remove_path(job.folder.path / FOLDER)


def read_data(job: FinetuningJob) -> None:
    """Read the files, encode them, and show what will be learned."""
    settings = job.settings
    job.splits = read_splits(build_task(settings.task), settings.data, seed=settings.training.seed)
    known, task = job.start.tokenizer(job.splits), job.splits.task
    tokenizer = task.extend_tokenizer(known if task.required_head.kind == "language" else known.source_side())
    job.encoding = choose_encoding(settings, job.start, tokenizer)
    job.encoded = {name: job.splits.task.encode(examples, job.encoding)
                   for name, examples in job.splits.named().items()}
    job.splits = replace(job.splits, task=job.splits.task.fit_lengths(job.encoded["train"]))
    job.data_lines = [*describe_splits(job.splits, job.encoded, job.encoding.length),
                      *describe_unknown_tokens(job.splits, job.encoded["train"], tokenizer)]
    job.run.console.say(*job.data_lines)
    job.run.console.note(*show_examples(job.splits, job.encoded["train"], tokenizer))
    sources = find_sources([*settings.data.train, *settings.data.held_out, *settings.data.test])
    job.run.note(data={source.name: file_digest(source.path) for source in sources})


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
    job.run.console.say(f"{parameters(job.model.config):,} parameters")
    grown = f"the tokenizer has {tokenizer.vocab_size:,} ids, so there are new rows in"
    for what, names in (("new", adopted.new), (grown, adopted.wider), ("left behind", adopted.left)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            job.run.console.say(f"{what}: {', '.join(names[:3])}{more}")
    if settings.tuning is not None:
        job.run.console.say(*rewrite_and_report(job.model, settings.tuning, seed=settings.training.seed))


def train_task(job: FinetuningJob) -> TrainingResult:
    """Train."""
    settings, rows, objective = job.settings.training, job.encoded["train"], job.splits.task.objective
    batches = job.splits.task.batches(rows, settings.batch, seed=settings.seed)
    training = settings.training(batches.steps_per_epoch, int(rows.lengths.max()))
    objective.bind(job.model)
    identity = job.settings.model_dump(mode="json", exclude={"metrics": True, "training": {"reporters"}})
    evaluate = Evaluator(list(order_by_length(job.encoded["held-out"], settings.batch)), CollateExamples(),
                         objective.held_out(), settings.seed, job.run.processes)
    result = train(job.model, TrainingData(batches, CollateExamples(), objective), training,
                   run_folder=job.folder.path, reporters=job.run.reporters(training),
                   evaluate=evaluate, recipe=identity | {"data": job.run.passport.data})
    seen = training.steps / batches.steps_per_epoch * len(rows)
    speed = f", {seen / result.seconds:.0f} rows/s" if result.seconds and result.reason == "done" else ""
    job.run.console.say(f"{result.steps:,} steps in {format_duration(result.seconds)}{speed}, in {result.dtype}")
    load_weights_into(job.model, usable_checkpoint(job.folder.path))
    return result


def save_task_model(job: FinetuningJob, folder: Path) -> None:
    """Save the model with its tokenizer and its task."""
    layout = save_bare(job.model, folder)
    job.encoding.tokenizer.save(folder)
    write_task(folder, job.splits.task.config, job.encoding.length)
    job.run.console.say(f"{job.folder.model}, in the layout {layout}; ask it with `saucier predict {job.folder.path}`")


def score_split(job: FinetuningJob, name: str, trained: TrainingResult) -> SplitScores:
    """Let the model answer one split; print its scores next to those of simple methods, and its hardest errors."""
    splits, settings = job.splits, job.settings
    examples: list[Any] = splits.named()[name]
    reading = Predictor(job.model, job.encoding, settings.training.batch, cast(AutocastDtype, trained.dtype))
    answers = splits.task.predict(reading, examples, job.encoded[name])
    found = score_answers(splits.task, name, examples, answers, splits.train, metrics=settings.metrics)
    write_predictions(job.folder.predictions(name), (prediction_row(splits.task, *one) for one in found.pairs()))
    first, *others = found.lines()
    job.run.console.say(f"{name}: {first}", *others)
    if (missing := missing_extra(splits.task)) is not None:
        job.run.console.note(f"  {missing}")
    job.run.console.note(*(f"  {line}" for line in hardest_errors(splits.task, found)))
    return found
