"""The whole job of `saucier cook`: read, tokenizer, pack, plan, train, evaluate, sample, report; and of `saucier
rerun`.

A run that was stopped is resumed; what is done already is not done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from saucier.adaptation.rewrite import rewrite_and_report
from saucier.adaptation.starting_weights import AddedTokens, initialize_from
from saucier.checkpoints.hub import resolve_folder
from saucier.devices import choose_device
from saucier.errors import InputError
from saucier.files import find_free_name, recover_all
from saucier.folders.kinds import find_model_folder
from saucier.folders.load import load, set_token_spellings
from saucier.jobs.pretraining.batching import build_run_objectives, make_training_data
from saucier.jobs.pretraining.data import prepare_data
from saucier.jobs.pretraining.initialization import initialize_sides, read_learned_objective
from saucier.jobs.pretraining.stages import JobOptions, PretrainingJob, evaluate_run, train_model
from saucier.jobs.run.console import RunConsole
from saucier.jobs.run.folder import RunState, check_input, copy_input, open_run, with_copied_input
from saucier.jobs.run.language_pairs import written_token_ids
from saucier.jobs.run.passport import Passport, read_passport, start_origin, start_passport
from saucier.jobs.writing.writer import special_token_options
from saucier.model import Transformer, build
from saucier.opened import PASSPORT_FILE, RunFolder, find_run
from saucier.parts.provenance import Origin
from saucier.plain import first_difference
from saucier.recipes import Recipe
from saucier.report.run_page import REPORT_FILE as REPORT
from saucier.report.run_page import write_report
from saucier.text.tokenizer.tokenizer import load_tokenizer
from saucier.text.tokenizer.vocabulary import spell_new_tokens
from saucier.training.processes import Processes, join_processes
from saucier.training.resume import holds_module, load_modules


def cook(recipe: Recipe, out: Path, wishes: JobOptions | None = None) -> RunFolder:
    """Cook a recipe into a run folder, or go on where it stopped.

    Under torchrun every process calls this; the first one reads, writes and speaks.
    Raises `InputError` for a recipe or text that is wrong, and for a folder with another run; `WorkError` when training
    fails or is interrupted (after saving).
    """
    wishes = wishes or JobOptions()
    with join_processes() as processes:
        run_console = RunConsole(silent=wishes.quiet or not processes.first)
        refuse_tuning_from_scratch(recipe, out, wishes)
        folder, standing = open_or_create_run(recipe, out, processes)
        recipe = folder.recipe()
        run_console.heading(f"{recipe.name} → {folder.path}")
        if standing == "finished":
            run_console.say("this run is finished; give another folder with --out to cook it again", style="green")
            if processes.first:
                finish_report(folder)
            return folder
        seeds = {"training": recipe.training.seed, "sampling": recipe.sampling.seed}
        passport = start_passport(folder.path, recipe.name, seeds, wishes.start)
        job = PretrainingJob(recipe, folder, run_console, processes, resume_start(wishes, passport, folder), passport)
        run_console.heard = job.record_seconds
        prepare_job(job)
        trained = train_model(job)
        if wishes.judge and processes.first:
            evaluate_run(job, trained)
        return folder


def finish_report(folder: RunFolder) -> None:
    """Do what is left of a run that was killed after it was evaluated: draw the report, and leave nothing half written.
    """
    if not (folder.path / REPORT).is_file():
        write_report(folder.path)
    recover_all(folder.path)


def refuse_tuning_from_scratch(recipe: Recipe, out: Path, wishes: JobOptions) -> None:
    """Raise `InputError` for a model that is to be tuned and has nothing learned yet."""
    if recipe.tuning is not None and wishes.start is None and not (out / PASSPORT_FILE).is_file():
        raise InputError("tuning: a model without learned weights has nothing to keep", where="command line",
                         remedy="begin with a model, --from FOLDER, or leave tuning out")


def open_or_create_run(recipe: Recipe, out: Path, processes: Processes) -> tuple[RunFolder, RunState]:
    """Open the run folder: the first process decides, the others follow."""
    with processes.first_goes_ahead():
        if not processes.first:
            return RunFolder(out), "finished" if RunFolder(out).is_finished else "resumed"
        check_input(recipe, out)
        found = open_run(out, with_copied_input(recipe, out))
        copy_input(recipe, out)
        return found


def resume_start(wishes: JobOptions, passport: Passport, folder: RunFolder) -> JobOptions:
    """Return wishes with the model that the run began with. Raises `InputError` where another one is wanted now."""
    then = passport.start
    if wishes.start is not None and start_origin(wishes.start) != then:
        raise InputError(f"this run began with {then or 'weights of its own'}", where=str(folder.path),
                         remedy="give the same model with --from, or a new folder with --out")
    return replace(wishes, start=None if then is None else Path(then))


def prepare_job(job: PretrainingJob) -> None:
    """Read the text and build the model; the first process writes, the others open what it wrote."""
    with job.processes.first_goes_ahead():
        job.prepared_data = prepare_data(job.recipe, job.folder, job.run_console, job.wishes.start)
    job.passport = job.passport.model_copy(update={"data": job.prepared_data.digests})
    job.lessons = build_run_objectives(job.recipe, job.prepared_data.tokenizer, job.prepared_data.collocations)
    job.study = make_training_data(job.recipe, job.prepared_data.tokenizer, job.prepared_data.train, job.lessons)
    job.model = build_job_model(job)
    job.study.objective.bind(job.model)
    if job.wishes.start is not None:
        load_objective_modules(job, resolve_folder(job.wishes.start))


def load_objective_modules(job: PretrainingJob, start: Path) -> None:
    """Give the objective's own modules, such as a generator, the weights of the run to start from, and say which not.
    """
    folder = find_model_folder(start)
    same = read_learned_objective(start) == job.recipe.objective.model_dump(mode="json")
    fits = same and load_tokenizer(start).vocab_size == job.prepared_data.tokenizer.vocab_size
    for name, module in job.study.objective.modules.items():
        if fits and holds_module(folder, name):
            load_modules({name: module}, folder)
        else:
            job.run_console.say(f"{name} begins anew")


def load_start_weights(model: Transformer, start: Path, job: PretrainingJob) -> None:
    """Give the model the weights of another one, and say what is new in it. Raises `InputError` for another body."""
    other = load(start, dtype="float32", device="cpu")
    known, tokenizer = (one if model.config.source is None else one.target  # whose tokens have the shared table
                        for one in (load_tokenizer(start), job.prepared_data.tokenizer))
    found = initialize_from(model, other, AddedTokens(known.next_id, spell_new_tokens(known, tokenizer)))
    origin = Origin.of(start, model, (*found.new, *found.wider))
    model.provenance = replace(model.provenance, origin=origin)
    for what, names in (("begins anew", found.new), ("is left behind", found.left)):
        if names:
            job.run_console.say(f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''} {what}")


def build_job_model(job: PretrainingJob) -> Transformer:
    """Build the model with random weights, or with those of the model to start from."""
    config = job.recipe.model_for(job.prepared_data.tokenizer.vocab_size)
    model = build(config, seed=job.recipe.training.seed, device=choose_device("auto"))
    set_token_spellings(model, job.prepared_data.tokenizer)
    if job.wishes.start is not None:
        load_start_weights(model, job.wishes.start, job)
    if job.recipe.warm_start is not None:
        begun = initialize_sides(model, job.recipe.warm_start)
        total = len(begun.taken) + len(begun.new)
        job.run_console.say(f"{len(begun.taken)} of {total} tensors begin with loaded weights")
    if job.recipe.tuning is not None:
        for line in rewrite_and_report(model, job.recipe.tuning, seed=job.recipe.training.seed):
            job.run_console.say(line)
    model.generation = special_token_options(written_token_ids(job.recipe, job.prepared_data.tokenizer))
    return model


@dataclass(frozen=True, slots=True)
class RerunComparison:
    """A run and its repetition."""

    first: Passport
    second: Passport

    @property
    def equal(self) -> bool:
        """Whether both ended with the same weights, bit by bit, and wrote the same samples."""
        return self.first.outcome is not None and self.first.outcome == self.second.outcome

    def reasons(self) -> Iterator[str]:
        """Yield what was not the same from the start, and may be why the results differ."""
        for name in ("data", "code", "environment", "seeds"):
            found = first_difference(passport_field(self.first, name), passport_field(self.second, name))
            if found is not None:
                key, old, new = found
                yield f"{name}: {key} was {old}, and is {new}"

    def lines(self) -> Iterator[str]:
        """Yield the outcome for a person."""
        one, two = self.first.outcome, self.second.outcome
        if one is None or two is None:
            return
        yield f"weights  {one.weights[:12]} and {two.weights[:12]}: {say_equal(one.weights == two.weights)}"
        yield f"loss     {one.loss:.6f} and {two.loss:.6f}: {say_equal(one.loss == two.loss)}"
        yield f"samples  {one.samples[:12]} and {two.samples[:12]}: {say_equal(one.samples == two.samples)}"


def passport_field(passport: Passport, name: str) -> object:
    """Return one field of a passport as plain values."""
    return passport.model_dump(mode="json")[name]


def say_equal(equal: bool) -> str:
    """Say it."""
    return "equal" if equal else "different"


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
    start = Path(first.start) if first.start else None
    cook(fix_environment_choices(recipe, first), target, JobOptions(calibrate=calibrate, quiet=quiet, start=start))
    return RerunComparison(first, read_passport(target))


def free_rerun_folder(path: Path) -> Path:
    """Return `RUN-again`, or the first of `RUN-again-2`, ... that holds no finished run."""
    return find_free_name(path.with_name(f"{path.name}-again"), lambda found: RunFolder(found).is_finished)


def fix_environment_choices(recipe: Recipe, first: Passport) -> Recipe:
    """Choose what the first run chose by itself: the number format, and as many threads, which decide the last bits."""
    torch.set_num_threads(int(first.environment.get("threads", torch.get_num_threads())))
    training = recipe.training.model_copy(update={"dtype": first.environment.get("dtype", recipe.training.dtype)})
    return recipe.model_copy(update={"training": training})
