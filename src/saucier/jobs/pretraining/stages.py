"""A pretraining job in progress, and its stages after the data: plan, train, evaluate, sample, report."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import torch

from saucier.checkpoints.steps import TrainingState, usable_checkpoint, weights_file
from saucier.config import parameters
from saucier.cost.planning import make_plan, read_plan
from saucier.cost.workload import Workload, count_trial_batches, tokens_per_step, training_flops
from saucier.devices import AutocastDtype
from saucier.jobs.pretraining.batching import make_evaluator
from saucier.jobs.pretraining.data import PreparedData
from saucier.jobs.pretraining.held_out import (
    baseline_scores,
    describe_measurements,
    held_out_loss,
    loss_by_frequency,
    translation_scores,
)
from saucier.jobs.pretraining.samples import held_out_documents, held_out_pairs, make_samples, write_samples
from saucier.jobs.run.console import RunConsole
from saucier.jobs.run.folder import essential_settings
from saucier.jobs.run.language_pairs import written_token_ids
from saucier.jobs.run.passport import Passport, RunOutcome, file_digest, utc_now
from saucier.machine import peak_resident_memory, reset_peak_memory, resident_memory, trim_memory
from saucier.model import Transformer
from saucier.objectives.build import BuiltObjective
from saucier.opened import OpenModel, RunFolder
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.recipes import Recipe
from saucier.report.results import DataCounts, LanguageCounts, Results, RunCost, Sample
from saucier.report.run_page import write_report
from saucier.text.rows.batch import compute_padding_share
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.loop import TrainingResult, train
from saucier.training.processes import Processes
from saucier.training.progress import Reporter, choose_screen
from saucier.training.resume import load_modules, load_weights_into
from saucier.training.update import TrainingData


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a person wants beside the recipe."""

    calibrate: bool = True
    """Measure this machine first, so that the plan has a time."""
    judge: bool = True
    """Evaluate, sample and report after training."""
    quiet: bool = False
    """Say nothing; on a terminal a bar still shows how training goes."""
    start: Path | None = None
    """Begin with the weights and the tokenizer of this model or run."""


@dataclass(slots=True)
class PretrainingJob:
    """A run under way."""

    recipe: Recipe
    folder: RunFolder
    run_console: RunConsole
    processes: Processes
    wishes: JobOptions
    passport: Passport
    prepared_data: PreparedData = field(init=False)
    lessons: tuple[BuiltObjective, ...] = field(init=False)
    study: TrainingData = field(init=False)
    model: Transformer = field(init=False)

    def record_seconds(self, stage: str, seconds: float) -> None:
        """Write the time of a stage into the passport."""
        self.passport = self.passport.timed(stage, seconds)
        if self.processes.first:
            self.passport.write(self.folder.path)


def train_model(job: PretrainingJob) -> TrainingResult:
    """Plan, then train."""
    if job.processes.first:
        with job.run_console.stage("plan"):
            print_plan(job)
    reset_peak_memory()
    with job.run_console.stage("train"):
        evaluate = make_evaluator(job.recipe, job.prepared_data.tokenizer, job.prepared_data.held_out, job.lessons,
                                  whole=False, processes=job.processes)
        identity = essential_settings(job.recipe) | {"data": job.prepared_data.digests}
        result = train(job.model, job.study, job.recipe.training, run_folder=job.folder.path, evaluate=evaluate,
                       reporters=training_reporters(job), recipe=identity)
        speed = f", {format_quantity(result.tokens_read / result.seconds)} tokens/s" if result.seconds else ""
        job.passport = job.passport.in_environment(dtype=result.dtype, device=next(job.model.parameters()).device.type)
        read = format_quantity(result.tokens_read)
        job.run_console.say(f"{result.steps:,} steps, {read} tokens in {format_duration(result.seconds)}{speed}")
    return result


def training_reporters(job: PretrainingJob) -> list[Reporter]:
    """Return who tells of the training; a person hears where the notes belong."""
    training = job.recipe.training
    told = job.processes.first and (sys.stderr.isatty() or not job.wishes.quiet)
    return [choose_screen(training.steps, training.log_every)] if told else []


def job_workload(job: PretrainingJob) -> Workload:
    """Return some batches of this run, for the plan."""
    return first_batches(job.recipe, job.study, job.prepared_data.tokenizer)


def first_batches(recipe: Recipe, study: TrainingData, tokenizer: Tokenizer) -> Workload:
    """Return the first batches of a study."""
    count = min(count_trial_batches(recipe), study.batches.steps_per_epoch)
    # the model follows from the vocabulary of the source
    ids = asdict(written_token_ids(recipe, tokenizer)) | {"vocab": tokenizer.vocab_size}
    begin = time.perf_counter()
    batches = tuple(study.batches[step] for step in range(count))
    return Workload(batches, ids, real=True, seconds=(time.perf_counter() - begin) / count)


def print_plan(job: PretrainingJob) -> None:
    """Say what the training will cost, once for a run; the report lays it beside what was measured."""
    plan = read_plan(job.folder.path)
    if plan is None:
        limit = job.recipe.evaluation.tokens_while_training
        trim_memory()
        scored = min(job.prepared_data.counts.held_out.tokens, limit or job.prepared_data.counts.held_out.tokens)
        plan = make_plan(job.recipe, workload=job_workload(job), held_out_tokens=scored,
                         vocab=job.prepared_data.tokenizer.vocab_size,
                         program=resident_memory() - 4 * parameters(job.model.config),
                         seconds=5.0 if job.wishes.calibrate else None)
        plan.write(job.folder.path)
    epochs = plan.steps / job.study.batches.steps_per_epoch
    job.run_console.say(f"{parameters(job.model.config):,} parameters; "
                        f"{plan.steps:,} steps, {format_quantity(plan.tokens)} tokens, {epochs:.1f} epochs")
    rows = job.study.batches.counts
    lost = {name: rows.get(name, 0) for name in ("truncated", "dropped", "tokens_cut")}
    if any(lost.values()):
        cut = f"{lost['truncated']:,} cut by {lost['tokens_cut']:,} tokens"
        job.run_console.say(f"too long: {cut}, {lost['dropped']:,} dropped")
    if "divided" in rows:
        job.run_console.say(f"rows of whole documents: {compute_padding_share(rows):.1%} of their places are padding; "
                            f"{rows['divided']:,} documents are longer than a row and divided")
    if alone := rows.get("left_out", 0):
        job.run_console.say(f"left out: {alone:,} rows of a single sentence")
    if plan.seconds is not None and plan.peak_memory is not None:
        job.run_console.say(f"about {format_duration(plan.seconds)} and {format_bytes(plan.peak_memory)} of memory")


def evaluate_run(job: PretrainingJob, trained: TrainingResult) -> None:
    """Evaluate the best weights, let them write, and report."""
    peak = peak_resident_memory()
    checkpoint = usable_checkpoint(job.folder.path)
    load_weights_into(job.model, checkpoint)
    load_modules(job.study.objective.modules, checkpoint)
    found = OpenModel(job.folder.path, job.model.eval(), job.prepared_data.tokenizer, job.recipe, job.lessons,
                      cast(AutocastDtype, trained.dtype))
    with job.run_console.stage("evaluate"), torch.no_grad():
        results = measure_results(job, found, checkpoint, trained, peak)
        for line in describe_measurements(results.held_out, results.baselines, results.scores):
            job.run_console.say(line)
    with job.run_console.stage("sample"), torch.no_grad():
        samples = make_samples(found, job.prepared_data)
        write_samples(job.folder.samples, samples)
        print_first_sample(job.run_console, samples)
    finish_run(job, results.model_copy(update={"samples": samples}), checkpoint)


def measure_results(job: PretrainingJob, found: OpenModel, checkpoint: Path, trained: TrainingResult,
                    peak: int) -> Results:
    """Measure the model on held-out text, beside simpler methods."""
    prepared_data = job.prepared_data
    texts = (document.text for document in held_out_documents(prepared_data))
    vocab, place = prepared_data.tokenizer.vocab_size, str(checkpoint.relative_to(job.folder.path))
    held_out, beside = held_out_loss(found, prepared_data.held_out)
    frequent = loss_by_frequency(job.recipe, prepared_data.tokenizer, (prepared_data.train, prepared_data.held_out),
                                 job.lessons)
    return Results(
        step=TrainingState.read(checkpoint).step, steps=trained.steps, vocab=vocab, checkpoint=place,
        held_out=held_out.model_copy(update={"by_frequency": frequent}),
        data=count_training_data(job), cost=measure_cost(job, trained, peak),
        scores=beside + translation_scores(found, held_out_pairs(prepared_data)),
        baselines=baseline_scores(job.recipe, prepared_data.train, prepared_data.held_out, texts, vocab))


def count_training_data(job: PretrainingJob) -> DataCounts:
    """Say what was read, with what the rows could not hold."""
    counts, rows = job.prepared_data.counts, job.study.batches.counts
    dropped = counts.dropped | ({"too long": rows["dropped"]} if rows.get("dropped") else {})
    return counts.model_copy(update={"dropped": dropped, "truncated_rows": rows.get("truncated", 0),
                                     "truncated_tokens": rows.get("tokens_cut", 0),
                                     "divided_documents": rows.get("divided", 0),
                                     "padding": compute_padding_share(rows),
                                     "languages": tuple(add_language_tokens_seen(one, job)
                                                        for one in counts.languages),
                                     "directions": tuple(add_direction_tokens_seen(one, job)
                                                         for one in counts.directions)})


def add_language_tokens_seen(language: LanguageCounts, job: PretrainingJob) -> LanguageCounts:
    """Add how many tokens of a language were shown."""
    training = job.recipe.training
    return language.model_copy(update={"seen": round(language.drawn * training.steps * training.batch
                                                     * training.length)})


def add_direction_tokens_seen(direction: LanguageCounts, job: PretrainingJob) -> LanguageCounts:
    """Add about how many tokens of a direction were shown: pairs of its mean length, as often as they came."""
    batches, each = job.study.batches, direction.train.tokens / max(1, direction.train.documents)
    pairs = direction.drawn * batches.counts["rows"] * job.recipe.training.steps / batches.steps_per_epoch
    return direction.model_copy(update={"seen": round(pairs * each)})


def measure_cost(job: PretrainingJob, trained: TrainingResult, peak: int) -> RunCost:
    """Say what the run took so far."""
    each = tokens_per_step(job.recipe, job_workload(job))
    return RunCost(seconds=sum(job.passport.seconds.values()), phases=job.passport.seconds, peak_memory=peak,
                   training_flops=trained.steps * training_flops(job.recipe, job.prepared_data.tokenizer.vocab_size,
                                                                 each),
                   tokens_per_second=trained.tokens_read / trained.seconds if trained.seconds else None)


def print_first_sample(run_console: RunConsole, samples: tuple[Sample, ...]) -> None:
    """Show the first sample, and say where the others are."""
    if samples:
        first = samples[0]
        run_console.say(f"from {first.source}:" if first.source else "the first one:")
        run_console.quote(f"{first.prompt}{first.text}" if not first.reference else f"{first.prompt}\n→ {first.text}")


def finish_run(job: PretrainingJob, results: Results, checkpoint: Path) -> None:
    """Seal the passport, write evaluation.json (which makes the run a finished one) and the report."""
    weights = file_digest(weights_file(checkpoint))
    outcome = RunOutcome(step=results.step, weights=weights, loss=results.held_out.loss,
                         samples=file_digest(job.folder.samples))
    job.passport = job.passport.model_copy(update={"outcome": outcome, "ended": utc_now()})
    job.passport.write(job.folder.path)
    seconds = job.passport.seconds
    spent = results.cost.model_copy(update={"phases": seconds, "seconds": sum(seconds.values())})
    results = results.model_copy(update={"cost": spent})
    results.write(job.folder.path)
    with job.run_console.stage("report"):
        job.run_console.say(str(write_report(job.folder.path)))
        job.run_console.say(f"all in {format_duration(sum(seconds.values()))}; samples in {job.folder.samples}",
                            style="dim")
