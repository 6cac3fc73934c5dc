"""The stages plan and train of a run."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

from saucier.config import parameters
from saucier.inspection.machine import give_back, reset_peak, resident
from saucier.inspection.plan import make_plan, read_plan
from saucier.inspection.units import bytes_text, duration, quantity
from saucier.inspection.workload import Workload, enough
from saucier.recipes import Recipe
from saucier.runs.folder import essential
from saucier.runs.job import Cooking
from saucier.runs.study import make_evaluator
from saucier.runs.told import token_ids
from saucier.text.rows import padding_share
from saucier.text.tokenizer import Tokenizer
from saucier.training.loop import Result, train
from saucier.training.progress import Reporter, screen
from saucier.training.update import Study


def teach(job: Cooking) -> Result:
    """Plan, then train."""
    if job.us.first:
        with job.voice.stage("plan"):
            say_plan(job)
    reset_peak()
    with job.voice.stage("train"):
        evaluate = make_evaluator(job.recipe, job.pantry.tokenizer, job.pantry.held_out, job.lessons, whole=False,
                                  processes=job.us)
        identity = essential(job.recipe) | {"data": job.pantry.digests}
        result = train(job.model, job.study, job.recipe.training, run_folder=job.folder.path, evaluate=evaluate,
                       reporters=reporters(job), recipe=identity)
        speed = f", {quantity(result.tokens_read / result.seconds)} tokens/s" if result.seconds else ""
        job.passport = job.passport.in_environment(dtype=result.dtype, device=next(job.model.parameters()).device.type)
        read = quantity(result.tokens_read)
        job.voice.say(f"{result.steps:,} steps, {read} tokens in {duration(result.seconds)}{speed}")
    return result


def reporters(job: Cooking) -> list[Reporter]:
    """Return who tells of the training; a person hears where the notes belong."""
    training = job.recipe.training
    told = job.us.first and (sys.stderr.isatty() or not job.wishes.quiet)
    return [screen(training.steps, training.log_every)] if told else []


def real_workload(job: Cooking) -> Workload:
    """Return some batches of this run, for the plan."""
    return real_batches(job.recipe, job.study, job.pantry.tokenizer)


def real_batches(recipe: Recipe, study: Study, tokenizer: Tokenizer) -> Workload:
    """Return the first batches of a study."""
    count = min(enough(recipe), study.batches.steps_per_epoch)
    ids = asdict(token_ids(recipe, tokenizer)) | {"vocab": tokenizer.vocab_size}  # the model follows from the source's
    begin = time.perf_counter()
    batches = tuple(study.batches[step] for step in range(count))
    return Workload(batches, ids, real=True, seconds=(time.perf_counter() - begin) / count)


def say_plan(job: Cooking) -> None:
    """Say what the training will cost, once for a run; the report lays it beside what was measured."""
    plan = read_plan(job.folder.path)
    if plan is None:
        limit = job.recipe.evaluation.tokens_while_training
        give_back()
        scored = min(job.pantry.counts.held_out.tokens, limit or job.pantry.counts.held_out.tokens)
        plan = make_plan(job.recipe, workload=real_workload(job), held_out_tokens=scored,
                         vocab=job.pantry.tokenizer.vocab_size,
                         program=resident() - 4 * parameters(job.model.config),
                         seconds=5.0 if job.wishes.calibrate else None)
        plan.write(job.folder.path)
    epochs = plan.steps / job.study.batches.steps_per_epoch
    job.voice.say(f"{parameters(job.model.config):,} parameters; "
                  f"{plan.steps:,} steps, {quantity(plan.tokens)} tokens, {epochs:.1f} epochs")
    rows = job.study.batches.counts
    lost = {name: rows.get(name, 0) for name in ("truncated", "dropped", "tokens_cut")}
    if any(lost.values()):
        cut = f"{lost['truncated']:,} cut by {lost['tokens_cut']:,} tokens"
        job.voice.say(f"too long: {cut}, {lost['dropped']:,} dropped")
    if "divided" in rows:
        job.voice.say(f"rows of whole documents: {padding_share(rows):.1%} of their places are padding; "
                      f"{rows['divided']:,} documents are longer than a row and divided")
    if alone := rows.get("left_out", 0):
        job.voice.say(f"left out: {alone:,} rows of a single sentence")
    if plan.seconds is not None and plan.peak_memory is not None:
        job.voice.say(f"about {duration(plan.seconds)} and {bytes_text(plan.peak_memory)} of memory")
