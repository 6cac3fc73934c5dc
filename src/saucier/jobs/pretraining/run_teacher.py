"""The teacher of a pretraining: its tokenizer cuts the text, and it stands beside every objective of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from saucier.errors import InputError
from saucier.jobs.run.console import Console
from saucier.jobs.run.teacher import Teacher, describe_distillation, open_teacher, refuse_compiling
from saucier.objectives.build import BuiltObjective
from saucier.objectives.config.distillation import Distillation
from saucier.objectives.distillation import build_distilled
from saucier.recipes import Recipe
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer


def find_tokenizer(recipe: Recipe, start: Path | None) -> Path | None:
    """Return whose tokenizer a run takes: of the model to begin with, or of its teacher; None: it trains one."""
    teacher = None if recipe.distillation is None else recipe.distillation.teacher
    return start if start is not None or teacher is None else Path(teacher)


def open_run_teacher(config: Distillation, tokenizer: Tokenizer) -> Teacher:
    """Load the teacher of a run. Raises `InputError` where it tells other tokens apart, and for stored outputs."""
    if config.stored is not None:
        raise InputError("what a teacher gives is kept for rows that come again, and each step of a pretraining has "
                         "rows of its own", where="distillation.stored",
                         remedy="leave it out; a fine-tuning takes it")
    teacher = open_teacher(config)
    if load_tokenizer(teacher.place).get_vocab() != tokenizer.get_vocab():
        raise InputError("the teacher's tokenizer has other tokens than this run's", where="distillation.teacher",
                         remedy="leave --from and tokenizer.extend out, so that the run takes the teacher's")
    return teacher


def add_teacher(objectives: Sequence[BuiltObjective], recipe: Recipe, teacher: Teacher, vocab: int,
                console: Console) -> tuple[BuiltObjective, ...]:
    """Put the teacher around each objective of a run, and say what is learned from it. Raises `InputError`."""
    assert recipe.distillation is not None, "there is a teacher"
    found = list[BuiltObjective]()
    for one in objectives:
        distilled = build_distilled(one.objective, recipe.distillation, teacher.model, body=recipe.model_for(vocab),
                                    steps=recipe.training.steps, seed=recipe.training.seed)
        refuse_compiling(distilled, compiles=recipe.training.compile)
        if not found:
            console.say(*describe_distillation(distilled, teacher))
        found.append(replace(one, objective=distilled))
    return tuple(found)
