"""The whole job: read, tokenizer, pack, plan, train, evaluate, sample, report. Every stage prints what it counted.

A run that was stopped goes on where it was; what is done already is not done again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import torch

from saucier.checkpoints.model_folder import fill
from saucier.config import parameters
from saucier.devices import choose_device
from saucier.errors import InputError
from saucier.inspection.costs import tokens_a_step, training_flops
from saucier.inspection.machine import peak_resident, reset_peak, resident
from saucier.inspection.plan import make_plan, read_plan
from saucier.inspection.results import Cost, Results, Sample
from saucier.inspection.units import bytes_text, duration, quantity
from saucier.inspection.workload import BATCHES, Workload
from saucier.loading import load
from saucier.model import Transformer, build
from saucier.objectives.base import TokenIds
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder, Standing, essential, open_run
from saucier.runs.pantry import Pantry, stock
from saucier.runs.passport import Outcome, Passport, file_digest, new_passport, now, read_passport
from saucier.runs.samples import held_out_documents, held_out_pairs, make_samples, write_samples
from saucier.runs.scoring import Candidate, held_out_loss, simpler_methods, translation_scores
from saucier.runs.study import make_evaluator, make_study
from saucier.runs.verdict import lines
from saucier.runs.voice import Voice
from saucier.runs.writing import special
from saucier.training.loop import Result, train
from saucier.training.precision import Dtype
from saucier.training.processes import Processes, processes
from saucier.training.progress import Reporter, screen
from saucier.training.resume import State, usable_checkpoint
from saucier.training.update import Study


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person wants beside the recipe."""

    calibrate: bool = True
    """Measure this machine first, so that the plan has a time."""
    judge: bool = True
    """Evaluate, sample and report after training."""
    start: Path | None = None
    """Begin with the weights of this model or run."""


@dataclass(slots=True)
class Cooking:
    """A run under way."""

    recipe: Recipe
    folder: RunFolder
    voice: Voice
    us: Processes
    wishes: Wishes
    passport: Passport
    pantry: Pantry = field(init=False)
    model: Transformer = field(init=False)

    def keep_time(self, stage: str, seconds: float) -> None:
        """Write the time of a stage into the passport."""
        self.passport = self.passport.timed(stage, seconds)
        if self.us.first:
            self.passport.write(self.folder.path)


def cook(recipe: Recipe, out: Path, wishes: Wishes | None = None) -> RunFolder:
    """Cook a recipe into a run folder, or go on where it stopped.

    Under torchrun every process calls this; the first one reads, writes and speaks.
    Raises `InputError` for a recipe or text that is wrong, and for a folder with another run; `WorkError` when training
    fails or is interrupted (after saving).
    """
    wishes = wishes or Wishes()
    with processes() as us:
        voice = Voice(silent=not us.first)
        folder, standing = begun(recipe, out, us)
        voice.heading(f"{recipe.name} → {folder.path}")
        if standing == "finished":
            voice.say("this run is finished; give another folder with --out to cook it again", style="green")
            return folder
        job = Cooking(recipe, folder, voice, us, wishes, boarding(recipe, folder, standing))
        voice.heard = job.keep_time
        prepare(job)
        trained = do_training(job)
        if wishes.judge and us.first:
            judge(job, trained)
        return folder


def begun(recipe: Recipe, out: Path, us: Processes) -> tuple[RunFolder, Standing]:
    """Open the run folder: the first process decides, the others follow."""
    if us.first:
        found = open_run(out, recipe)
        us.wait()
        return found
    us.wait()
    return RunFolder(out), "finished" if RunFolder(out).is_finished else "resumed"


def boarding(recipe: Recipe, folder: RunFolder, standing: Standing) -> Passport:
    """Begin the passport, or count another part of the same run."""
    if standing != "new" and (folder.path / "passport.json").is_file():
        found = read_passport(folder.path)
        return found.model_copy(update={"parts": found.parts + 1})
    return new_passport(recipe.name, {"training": recipe.training.seed, "sampling": recipe.sampling.seed})


def prepare(job: Cooking) -> None:
    """Read the text and build the model; the first process writes, the others open what it wrote."""
    if job.us.first:
        job.pantry = stock(job.recipe, job.folder, job.voice)
        job.us.wait()
    else:
        job.us.wait()
        job.pantry = stock(job.recipe, job.folder, job.voice)
    job.passport = job.passport.model_copy(update={"data": job.pantry.digests})
    job.model = fresh_model(job)


def fresh_model(job: Cooking) -> Transformer:
    """Build the model with random weights, or with those of the model to start from."""
    config = job.recipe.model_for(job.pantry.tokenizer.vocab_size)
    model = build(config, seed=job.recipe.training.seed, device=choose_device("auto"))
    if job.wishes.start is not None:
        other = load(job.wishes.start, dtype="float32")
        if other.config != config:
            raise InputError("is a model of another shape than the recipe's", where=str(job.wishes.start),
                             remedy="`saucier diff` shows what differs")
        model.load_state_dict(other.state_dict())
    model.generation = dict(special(TokenIds.of(job.pantry.tokenizer)))
    return model


def do_training(job: Cooking) -> Result:
    """Plan, then train."""
    study = make_study(job.recipe, job.pantry.tokenizer, job.pantry.train)
    if job.us.first:
        with job.voice.stage("plan"):
            say_plan(job, study)
    reset_peak()
    with job.voice.stage("train"):
        evaluate = make_evaluator(job.recipe, job.pantry.tokenizer, job.pantry.held_out, whole=False, processes=job.us)
        identity = essential(job.recipe) | {"data": job.pantry.digests}
        result = train(job.model, study, job.recipe.training, run_folder=job.folder.path, evaluate=evaluate,
                       reporters=reporters(job), recipe=identity)
        speed = f", {quantity(result.tokens / result.seconds)} tokens/s" if result.seconds else ""
        job.passport = job.passport.in_environment(dtype=result.dtype, device=next(job.model.parameters()).device.type)
        job.voice.say(f"{result.steps:,} steps, {quantity(result.tokens)} tokens in {duration(result.seconds)}{speed}")
    return result


def reporters(job: Cooking) -> list[Reporter]:
    """Return who tells of the training; a person hears where the notes belong."""
    training = job.recipe.training
    return [screen(training.steps, training.log_every)] if job.us.first else []


def real_workload(job: Cooking, study: Study) -> Workload:
    """Return some batches of this run, for the plan."""
    count = min(BATCHES, study.batches.steps_per_epoch)
    return Workload(tuple(study.batches[step] for step in range(count)), asdict(TokenIds.of(job.pantry.tokenizer)),
                    real=True)


def say_plan(job: Cooking, study: Study) -> None:
    """Say what the training will cost, once for a run; the report lays it beside what was measured."""
    plan = read_plan(job.folder.path)
    if plan is None:
        limit = job.recipe.evaluation.tokens_while_training
        scored = min(job.pantry.counts.held_out.tokens, limit or job.pantry.counts.held_out.tokens)
        plan = make_plan(job.recipe, workload=real_workload(job, study), held_out_tokens=scored,
                         vocab=job.pantry.tokenizer.vocab_size,
                         program=resident() - 4 * parameters(job.model.config),
                         seconds=5.0 if job.wishes.calibrate else None)
        plan.write(job.folder.path)
    epochs = plan.steps / study.batches.steps_per_epoch
    job.voice.say(f"{parameters(job.model.config):,} parameters; "
                  f"{plan.steps:,} steps, {quantity(plan.tokens)} tokens, {epochs:.1f} epochs")
    lost = {name: study.batches.counts.get(name, 0) for name in ("truncated", "dropped", "tokens_cut")}
    if any(lost.values()):
        cut = f"{lost['truncated']:,} cut by {lost['tokens_cut']:,} tokens"
        job.voice.say(f"too long: {cut}, {lost['dropped']:,} dropped")
    if plan.seconds is not None and plan.peak_memory is not None:
        job.voice.say(f"about {duration(plan.seconds)} and {bytes_text(plan.peak_memory)} of memory")


def judge(job: Cooking, trained: Result) -> None:
    """Evaluate the best weights, let them write, and report."""
    peak = peak_resident()
    checkpoint = usable_checkpoint(job.folder.path)
    fill(job.model, checkpoint / "model.safetensors")
    found = Candidate(job.recipe, job.model.eval(), job.pantry.tokenizer, cast(Dtype, trained.dtype))
    with job.voice.stage("evaluate"), torch.no_grad():
        results = measured(job, found, checkpoint, trained, peak)
        for line in lines(results.held_out, results.baselines, results.scores):
            job.voice.say(line)
    with job.voice.stage("sample"), torch.no_grad():
        samples = make_samples(found, job.pantry)
        write_samples(job.folder.samples, samples)
        say_samples(job.voice, samples)
    finish(job, results.model_copy(update={"samples": samples}), checkpoint)


def measured(job: Cooking, found: Candidate, checkpoint: Path, trained: Result, peak: int) -> Results:
    """Measure the model on held-out text, beside simpler methods."""
    pantry = job.pantry
    texts = (document.text for document in held_out_documents(pantry))
    vocab, place = pantry.tokenizer.vocab_size, str(checkpoint.relative_to(job.folder.path))
    held_out, beside = held_out_loss(found, pantry.held_out)
    return Results(
        step=State.read(checkpoint).step, steps=trained.steps, vocab=vocab, checkpoint=place, held_out=held_out,
        data=job.pantry.counts, cost=cost(job, trained, peak),
        scores=beside + translation_scores(found, held_out_pairs(pantry)),
        baselines=simpler_methods(job.recipe, pantry.train, pantry.held_out, texts, vocab))


def cost(job: Cooking, trained: Result, peak: int) -> Cost:
    """Say what the run took so far."""
    study = make_study(job.recipe, job.pantry.tokenizer, job.pantry.train)
    each = tokens_a_step(job.recipe, real_workload(job, study))
    return Cost(seconds=sum(job.passport.seconds.values()), phases=job.passport.seconds, peak_memory=peak,
                training_flops=trained.steps * training_flops(job.recipe, job.pantry.tokenizer.vocab_size, each),
                tokens_per_second=trained.tokens / trained.seconds if trained.seconds else None)


def say_samples(voice: Voice, samples: tuple[Sample, ...]) -> None:
    """Show the first sample, and say where the others are."""
    if samples:
        first = samples[0]
        voice.say(f"from {first.source}:" if first.source else "the first one:")
        voice.quote(f"{first.prompt}{first.text}" if not first.reference else f"{first.prompt}\n→ {first.text}")


def finish(job: Cooking, results: Results, checkpoint: Path) -> None:
    """Seal the passport, write evaluation.json (which makes the run a finished one) and the report."""
    weights = file_digest(checkpoint / "model.safetensors")
    outcome = Outcome(step=results.step, weights=weights, loss=results.held_out.loss,
                      samples=file_digest(job.folder.samples))
    job.passport = job.passport.model_copy(update={"outcome": outcome, "ended": now()})
    job.passport.write(job.folder.path)
    seconds = job.passport.seconds
    spent = results.cost.model_copy(update={"phases": seconds, "seconds": sum(seconds.values())})
    results = results.model_copy(update={"cost": spent})
    results.write(job.folder.path)
    with job.voice.stage("report"):
        from saucier.inspection.report import write_report

        job.voice.say(str(write_report(job.folder.path)))
        job.voice.say(f"all in {duration(sum(seconds.values()))}; samples in {job.folder.samples}", style="dim")
