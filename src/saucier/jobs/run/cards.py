"""What the jobs say on a model card: data with their digests, scores with their intervals, seeds and versions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from saucier.jobs.run.passport import Passport
from saucier.report.card import CardFacts, Data, Measured, name_base
from saucier.report.results import Results
from saucier.tasks.scores import Score

VERSIONS = ("torch", "tokenizers", "python")
"""Of the libraries that the passport knows, those that a reader of a card asks for."""


def describe_job(passport: Passport, made_by: str, task: str) -> CardFacts:
    """Return what a passport says of a model: `made_by` is the command, `task` what was learned."""
    return CardFacts(
        name=passport.recipe, made_by=made_by, task=task, base=name_base(passport.start), seeds=dict(passport.seeds),
        data=tuple(Data(Path(name).name, digest) for name, digest in passport.data.items()),
        versions={"saucier": passport.code.version,
                  **{name: passport.environment[name] for name in VERSIONS if name in passport.environment}})


def describe_finetuning(passport: Passport, kind: str, steps: int,
                        scores: Mapping[str, Iterable[Score]]) -> CardFacts:
    """Return what a fine-tuning says; `scores`: those of each split."""
    measured = tuple(Measured(split, one.name, one.value, one.low, one.high)
                     for split, found in scores.items() for one in found if math.isfinite(one.value))
    return replace(describe_job(passport, f"saucier finetune {kind}", kind), scores=measured, steps=steps)


def describe_pretraining(passport: Passport, objective: str, results: Results) -> CardFacts:
    """Return what a pretraining says."""
    held_out = results.held_out
    found = [("loss (nats a token)", held_out.loss), ("bits per byte", held_out.bits_per_byte),
             ("accuracy", held_out.accuracy), *((one.name, one.value) for one in results.scores)]
    facts = describe_job(passport, f"saucier cook {passport.recipe}", objective)
    return replace(
        facts, steps=results.step,
        data=tuple(Data(f"{results.data.source} ({one.name.replace('_', ' ')})", one.digest) for one in facts.data),
        scores=tuple(Measured("held-out text", name, value) for name, value in found
                     if value is not None and math.isfinite(value)))
