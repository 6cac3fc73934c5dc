"""The whole fine-tuning: read, show, prepare, train, score, save. A run that was stopped goes on where it was."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from saucier.adaptation.quantization.aware import fix_rounding
from saucier.checkpoints.steps import FOLDER
from saucier.config.registry import list_versions
from saucier.devices import AutocastDtype
from saucier.files import remove_path, write_atomically, write_json
from saucier.folders.save import save_bare
from saucier.folders.sentence_classifier import exchanged_head, modules_head, write_labels
from saucier.jobs.finetuning.data import Splits
from saucier.jobs.finetuning.extension import Extension, find_extension
from saucier.jobs.finetuning.job import (
    FINETUNING,
    FinetuningJob,
    describe_training,
    prepare_model,
    read_data,
    store_outputs,
    train_task,
)
from saucier.jobs.finetuning.passages import INDEX, VERSIONS, find_passages
from saucier.jobs.finetuning.range_test import find_rate
from saucier.jobs.finetuning.results import (
    SplitScores,
    hardest_errors,
    prediction_row,
    score_answers,
    suggest_improvements,
    write_finetuning_report,
)
from saucier.jobs.finetuning.search import chosen_task, search
from saucier.jobs.finetuning.settings import Finetuning
from saucier.jobs.finetuning.start import open_start
from saucier.jobs.finetuning.task_folder import TaskFolder, write_task
from saucier.jobs.finetuning.task_teacher import OUTPUTS
from saucier.jobs.run.cards import describe_finetuning
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import Job, open_or_create, write_settings
from saucier.jobs.run.passport import start_passport
from saucier.model import Transformer
from saucier.objectives.contrastive import PASSAGES
from saucier.report.card import CardFacts, write_card
from saucier.tasks.build import missing_extra
from saucier.tasks.prediction_files import write_predictions
from saucier.tasks.task import Predictor
from saucier.training.loop import TrainingResult
from saucier.training.processes import join_processes
from saucier.training.reporters import check_reporters


def finetune(settings: Finetuning, out: Path, *, quiet: bool = False, splits: Splits | None = None) -> TaskFolder:
    """Fine-tune into a folder, or go on where that stopped; `splits`: the rows, where they were read already.

    A finished one can be given more epochs. Under torchrun every process calls this; the first one writes and speaks.
    Raises `InputError` for settings, files or rows that are wrong; `WorkError` when training fails or is interrupted
    (after saving).
    """
    extension = find_extension(out, settings)
    if extension is not None:
        return extend(extension, quiet=quiet)
    with join_processes() as processes:
        processes.write_once(partial(open_or_create, out, settings, FINETUNING))
        folder = TaskFolder(out)
        console = Console(silent=quiet or not processes.first)
        console.heading(f"{settings.task.kind}: {settings.model} → {out}")
        if folder.is_finished:
            console.say(f"this fine-tuning is finished; for more epochs: saucier finetune {out} --epochs N; to do it "
                        "again, give another folder with --out", style="green")
            if processes.first:
                remove_run_files(folder.path)  # where it was killed while they were removed
            return folder
        check_reporters(settings.training.training(1, 1))
        start = open_start(settings)
        run = Job(out, FINETUNING, console, processes,
                  start_passport(out, settings.name, {"training": settings.training.seed}, start.place))
        run.passport = run.passport.in_environment(**list_versions(settings.as_dict()))
        job = FinetuningJob(run, settings, folder, start)
        with console.stage("data"):
            read_data(job, splits)
        with console.stage("model"):
            prepare_model(job)
        if processes.first:
            if not FINETUNING.is_started(out):  # now only: rows that are refused leave no folder
                write_settings(out, settings, FINETUNING)
            run.passport.write(out)
            if (passages := find_passages(job.splits.task)) is not None and not (out / INDEX).exists():
                passages.rows.index.write(out / INDEX)  # so that a run that goes on need not make it again
        store_outputs(job)
        choose_settings(job)
        with console.stage("train"):
            trained = train_task(job)
            console.say(describe_training(job, trained))
        if "quantization_aware" in job.model.provenance.rewrite_kinds:
            fix_rounding(job.model)
        processes.write_once(partial(score_and_save, job, trained))
        return folder


def choose_settings(job: FinetuningJob) -> None:
    """Find the rate and search for settings, where the settings say so; the model is then built by what was found."""
    if job.settings.range_test is None and job.settings.search is None:
        return
    if job.settings.range_test is not None:
        with job.run.console.stage("rate"):
            job.settings, found = find_rate(job)
            job.rates = list(zip(found.rates, found.losses, strict=True))
    if job.settings.search is not None:
        with job.run.console.stage("search"):
            job.settings, job.trials = search(job)
    job.splits = replace(job.splits, task=chosen_task(job, job.settings))
    with job.run.console.stage("model"):
        prepare_model(job)


def extend(extension: Extension, *, quiet: bool) -> TaskFolder:
    """Give a finished fine-tuning more epochs, or go on with them; raises as `finetune`."""
    with join_processes() as processes:
        Console(silent=quiet or not processes.first).say(extension.describe())
        finetune(extension.settings, extension.phase.path, quiet=quiet)
        processes.write_once(extension.adopt)
    return extension.folder


def score_and_save(job: FinetuningJob, trained: TrainingResult) -> None:
    """Score every part, write the model and the report, and finish the folder: on the process that writes."""
    with job.run.console.stage("score"):
        found = [score_split(job, name, trained) for name in job.encoded if name != "train"]
    with job.run.console.stage("save"):
        facts = describe_finetuning(job.run.passport, job.settings.task.kind, trained.steps,
                                    {one.split: one.scores for one in found})
        if job.second is not None:
            write_atomically(job.folder.path / PASSAGES, partial(save_second, job, job.second))
        write_atomically(job.folder.model, partial(save_task_model, job, facts))
        job.run.console.say(str(write_finetuning_report(job.folder.path, job.settings, job.splits.task, found,
                                                        {"Data": job.data_lines, "Teacher": job.teacher_lines},
                                                        rates=job.rates, trials=job.trials,
                                                        learned=len(job.splits.train))))
    job.run.passport = job.run.passport.in_environment(dtype=trained.dtype)
    job.run.close()
    # with scores.json it is a finished one; the checkpoints have done their work
    write_json(job.folder.scores, {"step": trained.steps, **{one.split: one.as_json() for one in found}})
    remove_run_files(job.folder.path)


def remove_run_files(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    for name in (FOLDER, OUTPUTS, INDEX, VERSIONS):
        remove_path(folder / name)


def write_model(job: FinetuningJob, folder: Path) -> str:
    """Write the model, and return in which layout; one that only we read says why."""
    document = job.start.document
    head = modules_head(job.model, document, job.encoding.length)
    if head is not None:
        with exchanged_head(job.model, document, head):
            save_bare(job.model, folder)
        named = job.model.provenance.document
        write_labels(folder, {key: named[key] for key in ("id2label", "label2id") if key in named})
        return "sentence-transformers (its encode gives the logits; transformers has no class that reads the mean)"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        layout = save_bare(job.model, folder)
    return "; ".join([layout, *(str(one.message) for one in said)])


def save_task_model(job: FinetuningJob, facts: CardFacts, folder: Path) -> None:
    """Save the model with its tokenizer, its task and its card."""
    layout = write_model(job, folder)
    job.encoding.tokenizer.save(folder)
    write_task(folder, job.splits.task.config, job.encoding.length)
    if (passages := find_passages(job.splits.task)) is not None:
        passages.write(folder)
    write_card(folder, job.model.config, facts)
    job.run.console.say(f"{job.folder.model}, in the layout {layout}; ask it with `saucier predict {job.folder.path}`")


def save_second(job: FinetuningJob, model: Transformer, folder: Path) -> None:
    """Save the encoder of passages, with the tokenizer."""
    save_bare(model, folder)
    job.encoding.tokenizer.save(folder)
    job.run.console.say(f"{job.folder.path / PASSAGES}, the encoder of passages")


def score_split(job: FinetuningJob, name: str, trained: TrainingResult) -> SplitScores:
    """Let the model answer one split; print its scores next to those of simple methods, and its hardest errors."""
    splits, settings = job.splits, job.settings
    examples: list[Any] = splits.named()[name]
    reading = Predictor(job.model, job.encoding, settings.training.batch, cast(AutocastDtype, trained.dtype),
                        job.second)
    answers = splits.task.predict(reading, examples, job.encoded[name])
    found = score_answers(splits.task, name, examples, answers, splits.train, metrics=settings.metrics)
    write_predictions(job.folder.predictions(name), (prediction_row(splits.task, *one) for one in found.pairs()))
    first, *others = found.lines()
    job.run.console.say(f"{name}: {first}", *others)
    if not all(one.beaten for one in found.verdicts):
        job.run.console.say(f"  try: {'; '.join(suggest_improvements(settings, len(splits.train)))}", style="yellow")
    if (missing := missing_extra(splits.task)) is not None:
        job.run.console.note(f"  {missing}")
    job.run.console.note(*(f"  {line}" for line in hardest_errors(splits.task, found)))
    return found
