"""The whole job: read, tokenizer, pack, plan, train, evaluate, sample, report. Every stage prints what it counted.

A run that was stopped goes on where it was; what is done already is not done again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from saucier.adaptation.adopt import NewTokens, adopt
from saucier.adaptation.tuned import tuned
from saucier.devices import choose_device
from saucier.errors import InputError
from saucier.files import sweep
from saucier.hub import folder_of
from saucier.inspection.report import FILE_NAME as REPORT
from saucier.inspection.report import write_report
from saucier.loading import load, model_folder_of
from saucier.model import Transformer, build
from saucier.parts.changed import Origin
from saucier.recipes import Recipe
from saucier.runs.continued import learned_before
from saucier.runs.folder import RunFolder, Standing, open_run
from saucier.runs.job import Cooking, Wishes
from saucier.runs.judge import judge
from saucier.runs.pantry import stock
from saucier.runs.passport import FILE_NAME, Passport, boarded, origin_of
from saucier.runs.standard_input import check_input, keep_input, with_kept_input
from saucier.runs.study import make_lessons, make_study
from saucier.runs.teach import teach
from saucier.runs.told import token_ids
from saucier.runs.voice import Voice
from saucier.runs.warmed import begin_warm
from saucier.runs.writing import special
from saucier.spelling import spell
from saucier.text.extension import spellings
from saucier.text.tokenizer import load_tokenizer
from saucier.training.processes import Processes, processes
from saucier.training.resume import fill_modules, holds_module


def cook(recipe: Recipe, out: Path, wishes: Wishes | None = None) -> RunFolder:
    """Cook a recipe into a run folder, or go on where it stopped.

    Under torchrun every process calls this; the first one reads, writes and speaks.
    Raises `InputError` for a recipe or text that is wrong, and for a folder with another run; `WorkError` when training
    fails or is interrupted (after saving).
    """
    wishes = wishes or Wishes()
    with processes() as us:
        voice = Voice(silent=wishes.quiet or not us.first)
        check_tuned(recipe, out, wishes)
        folder, standing = begun(recipe, out, us)
        recipe = folder.recipe()
        voice.heading(f"{recipe.name} → {folder.path}")
        if standing == "finished":
            voice.say("this run is finished; give another folder with --out to cook it again", style="green")
            if us.first:
                end_again(folder)
            return folder
        seeds = {"training": recipe.training.seed, "sampling": recipe.sampling.seed}
        passport = boarded(folder.path, recipe.name, seeds, wishes.start)
        job = Cooking(recipe, folder, voice, us, same_start(wishes, passport, folder), passport)
        voice.heard = job.keep_time
        prepare(job)
        trained = teach(job)
        if wishes.judge and us.first:
            judge(job, trained)
        return folder


def end_again(folder: RunFolder) -> None:
    """Do what is left of a run that was killed after it was evaluated: draw the report, and leave nothing half written.
    """
    if not (folder.path / REPORT).is_file():
        write_report(folder.path)
    sweep(folder.path)


def check_tuned(recipe: Recipe, out: Path, wishes: Wishes) -> None:
    """Raise `InputError` for a model that is to be tuned and has nothing learned yet."""
    if recipe.tuning is not None and wishes.start is None and not (out / FILE_NAME).is_file():
        raise InputError("tuning: a model without learned weights has nothing to keep", where="command line",
                         remedy="begin with a model, --from FOLDER, or leave tuning out")


def begun(recipe: Recipe, out: Path, us: Processes) -> tuple[RunFolder, Standing]:
    """Open the run folder: the first process decides, the others follow."""
    if us.first:
        check_input(recipe, out)
        found = open_run(out, with_kept_input(recipe, out))
        keep_input(recipe, out)
        us.wait()
        return found
    us.wait()
    return RunFolder(out), "finished" if RunFolder(out).is_finished else "resumed"


def same_start(wishes: Wishes, passport: Passport, folder: RunFolder) -> Wishes:
    """Return wishes with the model that the run began with. Raises `InputError` where another one is wanted now."""
    then = passport.start
    if wishes.start is not None and origin_of(wishes.start) != then:
        raise InputError(f"this run began with {then or 'weights of its own'}", where=str(folder.path),
                         remedy="give the same model with --from, or a new folder with --out")
    return replace(wishes, start=None if then is None else Path(then))


def prepare(job: Cooking) -> None:
    """Read the text and build the model; the first process writes, the others open what it wrote."""
    if not job.us.first:
        job.us.wait()
    job.pantry = stock(job.recipe, job.folder, job.voice, job.wishes.start)
    if job.us.first:
        job.us.wait()
    job.passport = job.passport.model_copy(update={"data": job.pantry.digests})
    job.lessons = make_lessons(job.recipe, job.pantry.tokenizer, job.pantry.collocations)
    job.study = make_study(job.recipe, job.pantry.tokenizer, job.pantry.train, job.lessons)
    job.model = fresh_model(job)
    job.study.objective.bind(job.model)
    if job.wishes.start is not None:
        take_modules(job, folder_of(job.wishes.start))


def take_modules(job: Cooking, start: Path) -> None:
    """Give the objective's own modules, such as a generator, the weights of the run to start from, and say which not.
    """
    folder = model_folder_of(start)
    same = learned_before(start) == job.recipe.objective.model_dump(mode="json")
    fits = same and load_tokenizer(start).vocab_size == job.pantry.tokenizer.vocab_size
    for name, module in job.study.objective.modules.items():
        if fits and holds_module(folder, name):
            fill_modules({name: module}, folder)
        else:
            job.voice.say(f"{name} begins anew")


def begin_with(model: Transformer, start: Path, job: Cooking) -> None:
    """Give the model the weights of another one, and say what is new in it. Raises `InputError` for another body."""
    other = load(start, dtype="float32", device="cpu")
    known, tokenizer = (one if model.config.source is None else one.target  # whose tokens have the shared table
                        for one in (load_tokenizer(start), job.pantry.tokenizer))
    found = adopt(model, other, NewTokens(known.next_id, spellings(known, tokenizer)))
    model.origin = Origin.of(start, model, (*found.new, *found.wider))
    for what, names in (("begins anew", found.new), ("is left behind", found.left)):
        if names:
            job.voice.say(f"{', '.join(names[:3])}{', ...' if len(names) > 3 else ''} {what}")


def fresh_model(job: Cooking) -> Transformer:
    """Build the model with random weights, or with those of the model to start from."""
    config = job.recipe.model_for(job.pantry.tokenizer.vocab_size)
    model = build(config, seed=job.recipe.training.seed, device=choose_device("auto"))
    spell(model, job.pantry.tokenizer)
    if job.wishes.start is not None:
        begin_with(model, job.wishes.start, job)
    if job.recipe.warm_start is not None:
        begun = begin_warm(model, job.recipe.warm_start)
        job.voice.say(f"{len(begun.taken)} of {len(begun.taken) + len(begun.new)} tensors begin with loaded weights")
    if job.recipe.tuning is not None:
        for line in tuned(model, job.recipe.tuning, seed=job.recipe.training.seed):
            job.voice.say(line)
    model.generation = dict(special(token_ids(job.recipe, job.pantry.tokenizer)))
    return model
