"""A job under way: its folder, what a person sees of it, the processes that do it, and its passport."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.jobs.run.console import Console
from saucier.jobs.run.folder import JobKind
from saucier.jobs.run.passport import Passport, start_passport, utc_now
from saucier.training.hyperparameters import Training
from saucier.training.processes import Processes
from saucier.training.progress import Reporter, choose_screen


@dataclass(slots=True)
class Job:
    """A job of any kind; what only one kind has is next to it."""

    path: Path
    kind: JobKind[Any]
    console: Console
    processes: Processes
    passport: Passport

    def note(self, **found: Any) -> None:
        """Put something into the passport, in memory."""
        self.passport = self.passport.model_copy(update=found)

    def record_seconds(self, stage: str, seconds: float) -> None:
        """Put the time of a stage into the passport, and write that where the job has begun in its folder."""
        self.passport = self.passport.timed(stage, seconds)
        if self.processes.first and self.kind.has_begun(self.path):
            self.passport.write(self.path)

    def close(self, **found: Any) -> None:
        """Write the passport of a job that has ended."""
        self.note(**found, ended=utc_now())
        self.passport.write(self.path)

    def reporters(self, training: Training) -> list[Reporter]:
        """Return what shows the training: the first process's screen, and in silence only a bar on a terminal."""
        shown = self.processes.first and (sys.stderr.isatty() or not self.console.silent)
        return [choose_screen(training.steps, training.log_every)] if shown else []


def start_job(path: Path, kind: JobKind[Any], console: Console, processes: Processes, *, name: str,
              seeds: dict[str, int], start: Path | None) -> Job:
    """Begin a job, or go on with the one in the folder: its passport counts another part."""
    job = Job(path, kind, console, processes, start_passport(path, name, seeds, start))
    console.on_stage_end = job.record_seconds
    return job
