"""The whole fine-tuning: read, show, prepare, train, score, save. A run that was stopped goes on where it was."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from saucier.adaptation.tuned import tuned
from saucier.config import parameters
from saucier.devices import choose_device
from saucier.files import remove, write_atomically, write_json
from saucier.finetuning.config import Finetuning
from saucier.finetuning.data import Splits, read_splits
from saucier.finetuning.folder import TaskFolder, begin, settle, write_task
from saucier.finetuning.opening import opening, shown, unknown
from saucier.finetuning.outcome import Measured, hardest, measure, predicted
from saucier.finetuning.prepare import prepared
from saucier.finetuning.report import write_report
from saucier.finetuning.start import Start, start_of
from saucier.inspection.units import duration
from saucier.model import Transformer
from saucier.recipes.coherence import learned_length
from saucier.runs.passport import Passport, boarded, file_digest, now
from saucier.runs.voice import Voice
from saucier.saving import save_bare
from saucier.tasks.baselines.simple import missing_extra
from saucier.tasks.build import build_task
from saucier.tasks.scores.predictions import write_predictions
from saucier.tasks.sheet import Collate, Sheet, ordered
from saucier.tasks.task import Encoding, Reading
from saucier.text.sources import find_sources
from saucier.text.tokenizer import Tokenizer
from saucier.training.config import Training
from saucier.training.evaluation import Evaluator
from saucier.training.loop import Result, train
from saucier.training.precision import Dtype
from saucier.training.processes import Processes, processes
from saucier.training.progress import Reporter, screen
from saucier.training.resume import FOLDER, fill_from, usable_checkpoint
from saucier.training.update import Study

LONGEST = 512
"""Tokens in a row, where neither the model nor the person says less. Attention's work grows with the square."""


@dataclass(slots=True)
class Job:
    """A fine-tuning under way."""

    settings: Finetuning
    folder: TaskFolder
    voice: Voice
    us: Processes
    passport: Passport
    start: Start
    tokenizer: Tokenizer = field(init=False)
    splits: Splits = field(init=False)
    sheets: dict[str, Sheet] = field(init=False)
    encoding: Encoding = field(init=False)
    model: Transformer = field(init=False)
    told: list[str] = field(default_factory=list)
    """What was said of the data."""

    def keep_time(self, stage: str, seconds: float) -> None:
        """Write the time of a stage into the passport, once there is a folder."""
        self.passport = self.passport.timed(stage, seconds)
        if self.us.first and self.folder.is_begun:
            self.passport.write(self.folder.path)


def finetune(settings: Finetuning, out: Path, *, quiet: bool = False) -> TaskFolder:
    """Fine-tune into a folder, or go on where that stopped.

    Under torchrun every process calls this; the first one writes and speaks.
    Raises `InputError` for settings, files or rows that are wrong; `WorkError` when training fails or is interrupted
    (after saving).
    """
    with processes() as us:
        if us.first:
            begin(out, settings)
        us.wait()
        folder = TaskFolder(out)
        voice = Voice(silent=quiet or not us.first)
        voice.heading(f"{settings.task.kind}: {settings.model} → {out}")
        if folder.is_finished:
            voice.say("this fine-tuning is finished; give another folder with --out to do it again", style="green")
            if us.first:
                remove(folder.path / FOLDER)  # where it was killed while they were removed
            return folder
        start = start_of(settings)
        passport = boarded(folder.path, settings.name, {"training": settings.training.seed}, start.place)
        job = Job(settings, folder, voice, us, passport, start)
        voice.heard = job.keep_time
        with voice.stage("data"):
            read(job)
        with voice.stage("model"):
            prepare(job)
        if us.first:
            settle(folder, settings)
            job.passport.write(out)
        with voice.stage("train"):
            trained = teach(job)
        if us.first:
            finish(job, trained)
        us.wait()
        return folder


def read(job: Job) -> None:
    """Read the files, encode them, and show what will be learned."""
    settings = job.settings
    job.splits = read_splits(build_task(settings.task), settings.data, seed=settings.training.seed)
    known, task = job.start.tokenizer(job.splits), job.splits.task
    job.tokenizer = task.spelled(known if task.wanted.kind == "language" else known.of_sources())
    job.encoding = encoding_of(settings, job.start, job.tokenizer)
    job.sheets = {name: job.splits.task.sheet(examples, job.encoding)
                  for name, examples in job.splits.named().items()}
    job.splits = replace(job.splits, task=job.splits.task.fitted(job.sheets["train"]))
    job.told = [*opening(job.splits, job.sheets, job.encoding.length),
                *unknown(job.splits, job.sheets["train"], job.tokenizer)]
    for line in job.told:
        job.voice.say(line)
    for line in shown(job.splits, job.sheets["train"], job.tokenizer):
        job.voice.note(line)
    files = (*settings.data.train, *settings.data.held_out, *settings.data.test)
    digests = {source.name: file_digest(source.path) for source in find_sources(list(files))}
    job.passport = job.passport.model_copy(update={"data": digests})


def encoding_of(settings: Finetuning, start: Start, tokenizer: Tokenizer) -> Encoding:
    """Return how rows are made for the model that the fine-tuning begins with."""
    body = start.body(tokenizer)
    room, ahead = learned_length(body), getattr(settings.tuning, "length", 0)
    given = (settings.training.length or LONGEST, None if room is None else room - ahead, tokenizer.handling.max_length)
    return Encoding(tokenizer, min(limit for limit in given if limit is not None), body,
                    start.says.get("decoder_start_token_id"))


def prepare(job: Job) -> None:
    """Build the model, and say what of it is new."""
    settings = job.settings
    found = prepared(job.start.model(job.tokenizer), job.splits.task.wanted, job.tokenizer, start=job.start.place,
                     seed=settings.training.seed, fresh_head=settings.fresh_head, mix=settings.mix,
                     device=choose_device("auto"))
    job.model = found.model
    job.model.generation |= job.splits.task.manner(job.encoding)
    job.voice.say(f"{parameters(job.model.config):,} parameters")
    grown = f"the tokenizer has {job.tokenizer.vocab_size:,} ids, so there are new rows in"
    for what, names in (("new", found.adopted.new), (grown, found.adopted.wider), ("left behind", found.adopted.left)):
        if names:
            job.voice.say(f"{what}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}")
    if settings.tuning is not None:
        for line in tuned(job.model, settings.tuning, seed=settings.training.seed):
            job.voice.say(line)


def teach(job: Job) -> Result:
    """Train."""
    settings, sheet, objective = job.settings.training, job.sheets["train"], job.splits.task.objective
    batches = job.splits.task.batches(sheet, settings.batch, seed=settings.seed)
    training = settings.training(batches.steps_per_epoch, int(sheet.lengths.max()))
    study = Study(batches, Collate(), objective)
    objective.bind(job.model)
    evaluate = Evaluator(list(ordered(job.sheets["held-out"], settings.batch)), Collate(), objective.held_out(),
                         settings.seed, job.us)
    result = train(job.model, study, training, run_folder=job.folder.path, reporters=reporters(job, training),
                   evaluate=evaluate, recipe=job.settings.as_dict() | {"data": job.passport.data})
    seen = training.steps / batches.steps_per_epoch * len(sheet)
    speed = f", {seen / result.seconds:.0f} rows/s" if result.seconds and result.reason == "done" else ""
    job.voice.say(f"{result.steps:,} steps in {duration(result.seconds)}{speed}, in {result.dtype}")
    fill_from(job.model, usable_checkpoint(job.folder.path))
    return result


def reporters(job: Job, training: Training) -> list[Reporter]:
    """Return who tells of the training."""
    told = job.us.first and (sys.stderr.isatty() or not job.voice.silent)
    return [screen(training.steps, training.log_every)] if told else []


def finish(job: Job, trained: Result) -> None:
    """Score, write predictions, save the model; the checkpoints have done their work then."""
    with job.voice.stage("score"):
        found = [scored_split(job, name, trained) for name in job.sheets if name != "train"]
    with job.voice.stage("save"):
        write_atomically(job.folder.model, partial(save_all, job))
        job.voice.say(str(write_report(job.folder.path, job.settings, job.splits.task, found, job.told)))
    job.passport = job.passport.in_environment(dtype=trained.dtype).model_copy(update={"ended": now()})
    job.passport.write(job.folder.path)
    write_json(job.folder.scores, {"step": trained.steps, **{one.split: one.as_json() for one in found}})
    remove(job.folder.path / FOLDER)


def save_all(job: Job, folder: Path) -> None:
    """Save the model with its tokenizer and its task."""
    layout = save_bare(job.model, folder)
    job.tokenizer.save(folder)
    write_task(folder, job.splits.task.config, job.encoding.length)
    job.voice.say(f"{job.folder.model}, in the layout {layout}; ask it with `saucier predict {job.folder.path}`")


def scored_split(job: Job, name: str, trained: Result) -> Measured:
    """Ask the model on one split; say its scores beside those of simple methods, and its hardest errors."""
    splits, settings = job.splits, job.settings
    examples: list[Any] = splits.named()[name]
    reading = Reading(job.model, job.encoding, settings.training.batch, cast(Dtype, trained.dtype))
    answers = splits.task.answers(reading, examples, job.sheets[name])
    found = measure(splits.task, name, examples, answers, splits.train)
    write_predictions(job.folder.predictions(name), (predicted(splits.task, *one) for one in found.pairs()))
    first, *others = found.said()
    job.voice.say(f"{name}: {first}")
    for line in others:
        job.voice.say(line)
    if (missing := missing_extra(splits.task)) is not None:
        job.voice.note(f"  {missing}")
    for line in hardest(splits.task, found):
        job.voice.note(f"  {line}")
    return found
