"""A run under way: what is known of it, handed from stage to stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from saucier.model import Transformer
from saucier.objectives.build import Lesson
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder
from saucier.runs.pantry import Pantry
from saucier.runs.passport import Passport
from saucier.runs.voice import Voice
from saucier.training.processes import Processes
from saucier.training.update import Study


@dataclass(frozen=True, slots=True)
class Wishes:
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
class Cooking:
    """A run under way."""

    recipe: Recipe
    folder: RunFolder
    voice: Voice
    us: Processes
    wishes: Wishes
    passport: Passport
    pantry: Pantry = field(init=False)
    lessons: tuple[Lesson, ...] = field(init=False)
    study: Study = field(init=False)
    model: Transformer = field(init=False)

    def keep_time(self, stage: str, seconds: float) -> None:
        """Write the time of a stage into the passport."""
        self.passport = self.passport.timed(stage, seconds)
        if self.us.first:
            self.passport.write(self.folder.path)
