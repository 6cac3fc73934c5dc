"""The stages evaluate, sample and report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch

from saucier.inspection.costs import tokens_a_step, training_flops
from saucier.inspection.machine import peak_resident
from saucier.inspection.report import write_report
from saucier.inspection.results import Cost, DataCounts, LanguageCounts, Results, Sample
from saucier.inspection.units import duration
from saucier.runs.frequencies import loss_by_frequency
from saucier.runs.job import Cooking
from saucier.runs.passport import Outcome, file_digest, now
from saucier.runs.samples import held_out_documents, held_out_pairs, make_samples, write_samples
from saucier.runs.scoring import Candidate, held_out_loss, simpler_methods, translation_scores
from saucier.runs.teach import real_workload
from saucier.runs.verdict import lines
from saucier.runs.voice import Voice
from saucier.text.rows import padding_share
from saucier.training.loop import Result
from saucier.training.precision import Dtype
from saucier.training.resume import State, fill_from, fill_modules, usable_checkpoint, weights_of


def judge(job: Cooking, trained: Result) -> None:
    """Evaluate the best weights, let them write, and report."""
    peak = peak_resident()
    checkpoint = usable_checkpoint(job.folder.path)
    fill_from(job.model, checkpoint)
    fill_modules(job.study.objective.modules, checkpoint)
    found = Candidate(job.recipe, job.model.eval(), job.pantry.tokenizer, cast(Dtype, trained.dtype), job.lessons)
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
    frequent = loss_by_frequency(job.recipe, pantry.tokenizer, (pantry.train, pantry.held_out), job.lessons)
    return Results(
        step=State.read(checkpoint).step, steps=trained.steps, vocab=vocab, checkpoint=place,
        held_out=held_out.model_copy(update={"by_frequency": frequent}),
        data=data_counts(job), cost=cost(job, trained, peak),
        scores=beside + translation_scores(found, held_out_pairs(pantry)),
        baselines=simpler_methods(job.recipe, pantry.train, pantry.held_out, texts, vocab))


def data_counts(job: Cooking) -> DataCounts:
    """Say what was read, with what the rows could not hold."""
    counts, rows = job.pantry.counts, job.study.batches.counts
    dropped = counts.dropped | ({"too long": rows["dropped"]} if rows.get("dropped") else {})
    return counts.model_copy(update={"dropped": dropped, "truncated_rows": rows.get("truncated", 0),
                                     "truncated_tokens": rows.get("tokens_cut", 0),
                                     "divided_documents": rows.get("divided", 0), "padding": padding_share(rows),
                                     "languages": tuple(seen(one, job) for one in counts.languages),
                                     "directions": tuple(shown(one, job) for one in counts.directions)})


def seen(language: LanguageCounts, job: Cooking) -> LanguageCounts:
    """Add how many tokens of a language were shown."""
    training = job.recipe.training
    return language.model_copy(update={"seen": round(language.drawn * training.steps * training.batch
                                                     * training.length)})


def shown(direction: LanguageCounts, job: Cooking) -> LanguageCounts:
    """Add about how many tokens of a direction were shown: pairs of its mean length, as often as they came."""
    batches, each = job.study.batches, direction.train.tokens / max(1, direction.train.documents)
    pairs = direction.drawn * batches.counts["rows"] * job.recipe.training.steps / batches.steps_per_epoch
    return direction.model_copy(update={"seen": round(pairs * each)})


def cost(job: Cooking, trained: Result, peak: int) -> Cost:
    """Say what the run took so far."""
    each = tokens_a_step(job.recipe, real_workload(job))
    return Cost(seconds=sum(job.passport.seconds.values()), phases=job.passport.seconds, peak_memory=peak,
                training_flops=trained.steps * training_flops(job.recipe, job.pantry.tokenizer.vocab_size, each),
                tokens_per_second=trained.tokens_read / trained.seconds if trained.seconds else None)


def say_samples(voice: Voice, samples: tuple[Sample, ...]) -> None:
    """Show the first sample, and say where the others are."""
    if samples:
        first = samples[0]
        voice.say(f"from {first.source}:" if first.source else "the first one:")
        voice.quote(f"{first.prompt}{first.text}" if not first.reference else f"{first.prompt}\n→ {first.text}")


def finish(job: Cooking, results: Results, checkpoint: Path) -> None:
    """Seal the passport, write evaluation.json (which makes the run a finished one) and the report."""
    weights = file_digest(weights_of(checkpoint))
    outcome = Outcome(step=results.step, weights=weights, loss=results.held_out.loss,
                      samples=file_digest(job.folder.samples))
    job.passport = job.passport.model_copy(update={"outcome": outcome, "ended": now()})
    job.passport.write(job.folder.path)
    seconds = job.passport.seconds
    spent = results.cost.model_copy(update={"phases": seconds, "seconds": sum(seconds.values())})
    results = results.model_copy(update={"cost": spent})
    results.write(job.folder.path)
    with job.voice.stage("report"):
        job.voice.say(str(write_report(job.folder.path)))
        job.voice.say(f"all in {duration(sum(seconds.values()))}; samples in {job.folder.samples}", style="dim")
