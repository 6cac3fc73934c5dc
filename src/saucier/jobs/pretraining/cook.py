"""The whole job of `saucier cook`: read, tokenizer, pack, plan, train, evaluate, sample, report; and of `saucier
rerun`.

A run that was stopped is resumed; what is done already is not done again.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch

from saucier.adaptation.rewrite import rewrite_and_report
from saucier.adaptation.starting_weights import warm_start
from saucier.checkpoints.hub import locate_model, resolve_folder
from saucier.checkpoints.steps import TrainingState, usable_checkpoint, weights_file
from saucier.config import parameters
from saucier.config.registry import list_versions
from saucier.cost.calibration import CalibrationTimeoutError
from saucier.cost.planning import make_plan, measuring_seconds, read_plan
from saucier.cost.workload import Workload, count_trial_batches, tokens_per_step, training_flops
from saucier.devices import AutocastDtype, choose_device
from saucier.errors import InputError
from saucier.files import find_free_name, recover_all, write_atomically, write_text
from saucier.folders.load import load, set_token_spellings
from saucier.jobs.pretraining.batching import build_run_objectives, make_evaluator, make_training_data
from saucier.jobs.pretraining.data import PreparedData, prepare_data
from saucier.jobs.pretraining.extension import LENGTH_PATHS, extend_run
from saucier.jobs.pretraining.held_out import (
    baseline_scores,
    describe_measurements,
    held_out_loss,
    loss_by_frequency,
    translation_scores,
)
from saucier.jobs.pretraining.initialization import check_tuning, load_start_modules, load_start_weights
from saucier.jobs.pretraining.run_teacher import add_teacher, find_tokenizer, open_run_teacher
from saucier.jobs.pretraining.samples import (
    format_samples,
    held_out_documents,
    held_out_pairs,
    make_samples,
)
from saucier.jobs.run.cards import describe_pretraining
from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import (
    PRETRAINING,
    Job,
    RunState,
    copy_path,
    essential_settings,
    open_run,
    with_copied_input,
)
from saucier.jobs.run.language_pairs import written_token_ids
from saucier.jobs.run.passport import (
    Passport,
    RerunComparison,
    RunOutcome,
    file_digest,
    read_passport,
    start_passport,
)
from saucier.jobs.run.teacher import DIGEST, Teacher, name_teacher
from saucier.machine import peak_resident_memory, reset_peak_memory, resident_memory, trim_memory
from saucier.model import Transformer, build
from saucier.objectives.build import BuiltObjective
from saucier.opened import PASSPORT_FILE, OpenModel, RunFolder, find_run
from saucier.plain import format_bytes, format_duration, format_quantity
from saucier.recipes import Recipe
from saucier.report.card import CARD, render_card
from saucier.report.page import REPORT_FILE as REPORT
from saucier.report.results import DataCounts, Results, RunCost, Sample
from saucier.report.run_page import write_report
from saucier.text.reading.sources import find_sources, is_standard_input
from saucier.text.rows.batch import compute_padding_share
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.training.loop import Identity, TrainingResult, train
from saucier.training.processes import Processes, join_processes
from saucier.training.reporters import check_reporters
from saucier.training.resume import load_modules, load_weights_into
from saucier.training.update import TrainingData


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a person wants in addition to the recipe."""

    calibrate: bool = True
    """Measure this machine first, so that the plan has a time."""
    evaluate: bool = True
    """Evaluate, sample and report after training."""
    quiet: bool = False
    """Say nothing; on a terminal a bar still shows how training goes."""
    start: Path | None = None
    """Begin with the weights and the tokenizer of this model or run."""


@dataclass(slots=True)
class PretrainingJob:
    """A pretraining under way."""

    run: Job
    recipe: Recipe
    folder: RunFolder
    options: JobOptions
    data: PreparedData = field(init=False)
    objectives: tuple[BuiltObjective, ...] = field(init=False)
    """What the model itself learns, by which it is measured in the end."""
    taught: tuple[BuiltObjective, ...] = field(init=False)
    """The same, with a teacher around each where there is one."""
    teacher: Teacher | None = None
    training_data: TrainingData = field(init=False)
    model: Transformer = field(init=False)


def cook(recipe: Recipe, out: Path, options: JobOptions | None = None) -> RunFolder:
    """Cook a recipe into a run folder, or go on where it stopped.

    Under torchrun every process calls this; the first one reads, writes and speaks.
    Raises `InputError` for a recipe or text that is wrong, and for a folder with another run; `WorkError` when training
    fails or is interrupted (after saving).
    """
    options = options or JobOptions()
    check_reporters(recipe.training)
    if recipe.distillation is not None:
        name_teacher(recipe.distillation)
        recipe = recipe.model_copy(update={"distillation": recipe.distillation.located()})
    with join_processes() as processes:
        console = Console(silent=options.quiet or not processes.first)
        if options.start is None and not (out / PASSPORT_FILE).is_file():
            check_tuning(recipe)
        with processes.first_goes_ahead():
            extension = extend_run(out, recipe) if processes.first else ()
        folder, state = open_or_create_run(recipe, out, processes)
        recipe = folder.recipe()
        console.heading(f"{recipe.name} → {folder.path}")
        console.say(*extension)
        if state == "finished":
            console.say(f"this run is finished; for more steps: saucier cook {out} --steps N; to cook it again, give "
                        "another folder with --out", style="green")
            if processes.first:
                if not (out / REPORT).is_file():  # it was killed after it was evaluated
                    write_report(out)
                recover_all(out)
            return folder
        run = Job(out, PRETRAINING, console, processes, start_passport(
            out, recipe.name, {"training": recipe.training.seed, "sampling": recipe.sampling.seed}, options.start))
        run.passport = run.passport.in_environment(**list_versions(recipe.as_dict()))
        job = PretrainingJob(run, recipe, folder, keep_start(options, run.passport, folder))
        with processes.first_goes_ahead():  # the first process writes, the others open what it wrote
            job.data = prepare_data(recipe, folder, console, find_tokenizer(recipe, job.options.start))
        if recipe.distillation is not None:
            job.teacher = open_run_teacher(recipe.distillation, job.data.tokenizer)
            job.data = replace(job.data, digests={**job.data.digests, DIGEST: job.teacher.digest})
        run.note(data=job.data.digests)
        build_objectives_and_model(job)
        if processes.first:
            with console.stage("plan"):
                print_plan(job)
        trained = train_model(job)
        if options.evaluate and processes.first:
            peak = peak_resident_memory()
            best = open_best_checkpoint(job, trained)
            results = evaluate_run(job, best, trained, peak)
            finish_run(job, results.model_copy(update={"samples": sample_run(job, best)}), best.path)
        return folder


def open_or_create_run(recipe: Recipe, out: Path, processes: Processes) -> tuple[RunFolder, RunState]:
    """Open the run folder: the first process decides, the others follow."""
    with processes.first_goes_ahead():
        if not processes.first:
            return RunFolder(out), "finished" if RunFolder(out).is_finished else "resumed"
        missing = {name: copy_path(name, out) for name in recipe.data.files
                   if is_standard_input(name) and not copy_path(name, out).is_file()}
        sources = find_sources(list(missing))  # with nothing in it, it is refused before a folder is made
        found = open_run(out, with_copied_input(recipe, out))
        for source, target in zip(sources, missing.values(), strict=True):
            write_atomically(target, partial(shutil.copyfile, source.path))
        return found


def keep_start(options: JobOptions, passport: Passport, folder: RunFolder) -> JobOptions:
    """Return the options with the model that the run began with. Raises `InputError` where another one is given now."""
    then = passport.start
    if options.start is not None and locate_model(options.start) != then:
        raise InputError(f"this run began with {then or 'weights of its own'}", where=str(folder.path),
                         remedy="give the same model with --from, or a new folder with --out")
    return replace(options, start=None if then is None else Path(then))


def build_objectives_and_model(job: PretrainingJob) -> None:
    """Build what is learned, the batches, and the model with its starting weights."""
    tokenizer = job.data.tokenizer
    job.objectives = build_run_objectives(job.recipe, tokenizer, job.data.collocations)
    job.taught = job.objectives
    if job.teacher is not None:
        job.taught = add_teacher(job.objectives, job.recipe, job.teacher, tokenizer.vocab_size, job.run.console)
    job.training_data = make_training_data(job.recipe, tokenizer, job.data.train, job.taught)
    job.model = build_job_model(job)
    job.training_data.objective.bind(job.model)
    if job.options.start is not None:
        modules, start = job.training_data.objective.modules, resolve_folder(job.options.start)
        load_start_modules(modules, start, job.recipe, tokenizer, job.run.console)


def build_job_model(job: PretrainingJob) -> Transformer:
    """Build the model with random weights, or with those of the model to start from."""
    model = build(job.recipe.model_for(job.data.tokenizer.vocab_size), seed=job.recipe.training.seed,
                  device=choose_device("auto"))
    set_token_spellings(model, job.data.tokenizer)
    if job.options.start is not None:
        load_start_weights(model, job.options.start, job.data.tokenizer, job.run.console)
    if job.recipe.warm_start is not None:
        encoder, decoder = (None if folder is None else load(folder, dtype="float32", device="cpu")
                            for folder in (job.recipe.warm_start.encoder, job.recipe.warm_start.decoder))
        found = warm_start(model, encoder=encoder, decoder=decoder)
        job.run.console.say(f"{len(found.taken)} of {len(found.taken) + len(found.new)} tensors begin with loaded "
                            "weights")
    if job.recipe.tuning is not None:
        job.run.console.say(*rewrite_and_report(model, job.recipe.tuning, seed=job.recipe.training.seed))
    model.generation = dict(written_token_ids(job.recipe, job.data.tokenizer).generation_options)
    return model


def train_model(job: PretrainingJob) -> TrainingResult:
    """Train; every process has its share of each batch."""
    reset_peak_memory()
    with job.run.console.stage("train"):
        evaluate = make_evaluator(job.recipe, job.data.tokenizer, job.data.held_out, job.taught,
                                  whole=False, processes=job.run.processes)
        identity = Identity(essential_settings(job.recipe) | {"data": job.data.digests}, LENGTH_PATHS)
        result = train(job.model, job.training_data, job.recipe.training, run_folder=job.folder.path, evaluate=evaluate,
                       reporters=job.run.reporters(job.recipe.training), recipe=identity)
        job.run.passport = job.run.passport.in_environment(dtype=result.dtype,
                                                           device=next(job.model.parameters()).device.type)
        speed = f", {format_quantity(result.tokens_read / result.seconds)} tokens/s" if result.seconds else ""
        job.run.console.say(f"{result.steps:,} steps, {format_quantity(result.tokens_read)} tokens in "
                            f"{format_duration(result.seconds)}{speed}")
    return result


def first_batches(recipe: Recipe, training_data: TrainingData, tokenizer: Tokenizer) -> Workload:
    """Return some batches of a run, for its plan."""
    count = min(count_trial_batches(recipe), training_data.batches.steps_per_epoch)
    # the model follows from the vocabulary of the source
    ids = asdict(written_token_ids(recipe, tokenizer)) | {"vocab": tokenizer.vocab_size}
    begin = time.perf_counter()
    batches = tuple(training_data.batches[step] for step in range(count))
    return Workload(batches, ids, real=True, seconds=(time.perf_counter() - begin) / count)


def print_plan(job: PretrainingJob) -> None:
    """Say what the training will cost, once for a run; the report shows it next to what was measured."""
    plan = read_plan(job.folder.path)
    if plan is None:
        limit = job.recipe.evaluation.tokens_while_training
        trim_memory()
        scored = min(job.data.counts.held_out.tokens, limit or job.data.counts.held_out.tokens)
        work = first_batches(job.recipe, job.training_data, job.data.tokenizer)
        planned = partial(make_plan, job.recipe, workload=work, held_out_tokens=scored,
                          vocab=job.data.tokenizer.vocab_size,
                          program=resident_memory() - 4 * parameters(job.model.config))
        plan = planned(seconds=None)
        if job.options.calibrate:
            try:
                plan = planned(seconds=measuring_seconds(plan.flops))
            except CalibrationTimeoutError as error:  # a busy machine delays the run, and does not end it
                job.run.console.say(f"{error.what}: the plan says no times", style="yellow")
        plan.write(job.folder.path)
    epochs = plan.steps / job.training_data.batches.steps_per_epoch
    job.run.console.say(f"{parameters(job.model.config):,} parameters; "
                        f"{plan.steps:,} steps, {format_quantity(plan.tokens)} tokens, {epochs:.1f} epochs")
    rows = job.training_data.batches.counts
    if any(rows.get(name) for name in ("truncated", "dropped", "tokens_cut")):
        job.run.console.say(f"too long: {rows.get('truncated', 0):,} cut by {rows.get('tokens_cut', 0):,} tokens, "
                            f"{rows.get('dropped', 0):,} dropped")
    if "divided" in rows:
        job.run.console.say(f"rows of whole documents: {compute_padding_share(rows):.1%} of their places are padding; "
                            f"{rows['divided']:,} documents are longer than a row and divided")
    if alone := rows.get("left_out", 0):
        job.run.console.say(f"left out: {alone:,} rows of a single sentence")
    if plan.seconds is not None and plan.peak_memory is not None:
        job.run.console.say(f"about {format_duration(plan.seconds)} and {format_bytes(plan.peak_memory)} of memory")


def open_best_checkpoint(job: PretrainingJob, trained: TrainingResult) -> OpenModel:
    """Return the model with its best weights, ready to be measured."""
    checkpoint = usable_checkpoint(job.folder.path)
    load_weights_into(job.model, checkpoint)
    load_modules(job.training_data.objective.modules, checkpoint)
    return OpenModel(checkpoint, job.model.eval(), job.data.tokenizer, job.recipe, job.objectives,
                     cast(AutocastDtype, trained.dtype))


def evaluate_run(job: PretrainingJob, best: OpenModel, trained: TrainingResult, peak: int) -> Results:
    """Measure the model on held-out text, next to simpler methods. `peak`: bytes that training took."""
    data, vocab = job.data, job.data.tokenizer.vocab_size
    with job.run.console.stage("evaluate"), torch.no_grad():
        texts = (document.text for document in held_out_documents(data))
        held_out, others = held_out_loss(best, data.held_out)
        frequent = loss_by_frequency(job.recipe, data.tokenizer, (data.train, data.held_out), job.objectives)
        results = Results(
            step=TrainingState.read(best.path).step, steps=trained.steps, vocab=vocab,
            checkpoint=str(best.path.relative_to(job.folder.path)),
            held_out=held_out.model_copy(update={"by_frequency": frequent}),
            data=count_training_data(job), cost=measure_cost(job, trained, peak),
            scores=others + translation_scores(best, held_out_pairs(data)),
            baselines=baseline_scores(job.recipe, data.train, data.held_out, texts, vocab))
        job.run.console.say(*describe_measurements(results.held_out, results.baselines, results.scores))
    return results


def sample_run(job: PretrainingJob, best: OpenModel) -> tuple[Sample, ...]:
    """Let the model write, show the first sample, and write all of them."""
    console = job.run.console
    with console.stage("sample"), torch.no_grad():
        samples = make_samples(best, job.data)
        write_text(job.folder.samples, format_samples(samples))
        for first in samples[:1]:
            console.say(f"from {first.source}:" if first.source else "the first one:")
            console.quote(f"{first.prompt}{first.text}" if not first.reference else f"{first.prompt}\n→ {first.text}")
    return samples


def count_training_data(job: PretrainingJob) -> DataCounts:
    """Say what was read, with what the rows could not hold."""
    counts, training, batches = job.data.counts, job.recipe.training, job.training_data.batches
    rows = batches.counts
    languages = tuple(one.model_copy(update={"seen": round(
        one.drawn * training.steps * training.batch * training.length)}) for one in counts.languages)
    directions = tuple(one.model_copy(update={"seen": round(  # about: its pairs are taken to be of its mean length
        one.drawn * rows["rows"] * training.steps / batches.steps_per_epoch
        * (one.train.tokens / max(1, one.train.documents)))}) for one in counts.directions)
    dropped = counts.dropped | ({"too long": rows["dropped"]} if rows.get("dropped") else {})
    return counts.model_copy(update={"dropped": dropped, "truncated_rows": rows.get("truncated", 0),
                                     "truncated_tokens": rows.get("tokens_cut", 0),
                                     "divided_documents": rows.get("divided", 0),
                                     "padding": compute_padding_share(rows),
                                     "languages": languages, "directions": directions})


def measure_cost(job: PretrainingJob, trained: TrainingResult, peak: int) -> RunCost:
    """Say what the run took so far."""
    each = tokens_per_step(job.recipe, first_batches(job.recipe, job.training_data, job.data.tokenizer))
    return RunCost(seconds=sum(job.run.passport.seconds.values()), phases=job.run.passport.seconds, peak_memory=peak,
                   training_flops=trained.steps * training_flops(job.recipe, job.data.tokenizer.vocab_size, each),
                   tokens_per_second=trained.tokens_read / trained.seconds if trained.seconds else None)


def finish_run(job: PretrainingJob, results: Results, checkpoint: Path) -> None:
    """Seal the passport, write evaluation.json (which makes the run a finished one) and the report."""
    outcome = RunOutcome(step=results.step, weights=file_digest(weights_file(checkpoint)), loss=results.held_out.loss,
                         samples=file_digest(job.folder.samples))
    job.run.close(outcome=outcome)
    facts = describe_pretraining(job.run.passport, job.recipe.objective.kind, results)
    write_text(checkpoint / CARD, render_card(checkpoint, job.model.config, facts))
    seconds = job.run.passport.seconds
    spent = results.cost.model_copy(update={"phases": seconds, "seconds": sum(seconds.values())})
    results.model_copy(update={"cost": spent}).write(job.folder.path)
    with job.run.console.stage("report"):
        job.run.console.say(str(write_report(job.folder.path)))
        job.run.console.say(f"all in {format_duration(sum(seconds.values()))}; samples in {job.folder.samples}",
                            style="dim")


def rerun(path: Path, out: Path | None = None, *, calibrate: bool = False, quiet: bool = False) -> RerunComparison:
    """Cook a finished run again, into `RUN-again` by default, and compare; `quiet`: without saying how it goes.

    Raises `InputError` for a run that is not finished.
    """
    folder = find_run(path)
    first, recipe = read_passport(path), folder.recipe()
    if first.outcome is None:
        raise InputError("this run is not finished", where=str(path),
                         remedy="finish it first: `saucier cook` on its folder")
    target = out or free_rerun_folder(path.resolve())
    # what the first run chose by itself decides the last bits: the number format, and how many threads
    torch.set_num_threads(int(first.environment.get("threads", torch.get_num_threads())))
    training = recipe.training.model_copy(update={"dtype": first.environment.get("dtype", recipe.training.dtype)})
    cook(recipe.model_copy(update={"training": training}), target,
         JobOptions(calibrate=calibrate, quiet=quiet, start=Path(first.start) if first.start else None))
    return RerunComparison(first, read_passport(target))


def free_rerun_folder(path: Path) -> Path:
    """Return `RUN-again`, or the first of `RUN-again-2`, ... that holds no finished run."""
    return find_free_name(path.with_name(f"{path.name}-again"), lambda found: RunFolder(found).is_finished)
