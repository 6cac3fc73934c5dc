"""The reporters of a run: which ones it has, and the programs outside that hear of it (Weights & Biases, MLflow)."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from saucier.config.registry import find_builder
from saucier.errors import InputError
from saucier.files import write_text
from saucier.training.hyperparameters import MLflow, Training, WeightsAndBiases
from saucier.training.progress import (
    EVENTS,
    FIGURES,
    METRICS,
    Events,
    MetricsFile,
    Progress,
    Reporter,
    choose_screen,
)

LONGEST_VALUE = 500
"""Letters of a setting that MLflow takes."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """The run that a reporter hears of."""

    folder: Path
    first: int
    """The update after which it goes on; 0: it begins."""
    every: int
    """Updates between two lines."""
    settings: dict[str, Any]
    """What decides the run, as JSON."""

    def is_due(self, progress: Progress) -> bool:
        """Say whether an update is to be written."""
        return progress.step % self.every == 0 or progress.step in (1, progress.steps)

    def identity(self, name: str, make: Callable[[], str]) -> str:
        """Return what another program calls this run: kept in its folder, so that a run that goes on is the same."""
        path = self.folder / f"{name}.id"
        if not path.is_file():
            write_text(path, make() + "\n")
        return path.read_text(encoding="utf-8").strip()


class WandbReporter(Reporter):
    """Weights & Biases."""

    def __init__(self, config: WeightsAndBiases, run: ReportedRun) -> None:
        """Begin its run, or go on with it."""
        import wandb

        self.run = run
        self.remote = wandb.init(project=config.project, name=config.name or run.folder.name, dir=str(run.folder),
                                 id=run.identity("wandb", lambda: uuid.uuid4().hex[:12]), resume="allow",
                                 mode=config.mode, config=run.settings, reinit="create_new",
                                 settings=wandb.Settings(silent=True, console="off", disable_git=True))

    def progress(self, progress: Progress) -> None:
        """Send the figures when it is time."""
        if self.run.is_due(progress):
            self.remote.log({f"training/{name}": getattr(progress, name) for name in FIGURES}, step=progress.step)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Send the scores."""
        self.remote.log({f"evaluation/{name}": value for name, value in scores.items()}, step=step)

    def close(self) -> None:
        """Write what is left."""
        self.remote.finish()


class MLflowReporter(Reporter):
    """MLflow."""

    def __init__(self, config: MLflow, run: ReportedRun) -> None:
        """Begin its run, or go on with it."""
        from mlflow import MlflowClient

        self.run = run
        self.client = MlflowClient(tracking_uri=config.tracking or f"sqlite:///{run.folder.absolute() / 'mlflow.db'}")
        known = self.client.get_experiment_by_name(config.experiment)
        experiment = known.experiment_id if known else self.client.create_experiment(config.experiment)
        self.id = run.identity("mlflow", lambda: str(self.client.create_run(
            experiment, run_name=config.name or run.folder.name).info.run_id))
        if not run.first:
            for key, value in flatten_values(run.settings):
                self.client.log_param(self.id, key, str(value)[:LONGEST_VALUE])

    def progress(self, progress: Progress) -> None:
        """Send the figures when it is time."""
        if self.run.is_due(progress):
            for name in FIGURES:
                self.client.log_metric(self.id, f"training/{name}", getattr(progress, name), step=progress.step)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Send the scores."""
        for name, value in scores.items():
            self.client.log_metric(self.id, f"evaluation/{name}", value, step=step)

    def close(self) -> None:
        """Say that the run has ended."""
        self.client.set_terminated(self.id)


LOGGERS: Mapping[str, Callable[[Any, ReportedRun], Reporter]] = {"wandb": WandbReporter, "mlflow": MLflowReporter}
"""Kind of reporter, which is the name of its package and of our extra -> what builds it."""


def flatten_values(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path of keys, value) for all values inside mappings."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_values(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


class Reporters(Reporter):
    """Several reporters as one."""

    def __init__(self, *members: Reporter) -> None:
        """Tell each of them, in order."""
        self.members = members

    def progress(self, progress: Progress) -> None:
        """Tell all."""
        for member in self.members:
            member.progress(progress)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Tell all."""
        for member in self.members:
            member.evaluation(step, scores)

    def note(self, text: str) -> None:
        """Tell all."""
        for member in self.members:
            member.note(text)

    def close(self) -> None:
        """Close all."""
        for member in self.members:
            member.close()


def check_events(choice: Literal["auto", "on", "off"]) -> bool:
    """Say whether to write events. Raises `InputError` when they are required and tensorboard is missing."""
    installed = importlib.util.find_spec("tensorboard") is not None
    if choice == "on" and not installed:
        raise InputError("tensorboard is not installed", where="training.events",
                         remedy="pip install 'saucier[tensorboard]', or set events: off")
    return installed and choice != "off"


def check_reporters(training: Training) -> None:
    """Raise `InputError` for events or a reporter whose package is missing."""
    check_events(training.events)
    for one in training.reporters:
        if one.kind in LOGGERS and importlib.util.find_spec(one.kind) is None:
            raise InputError(f"{one.kind} is not installed", where="training.reporters",
                             remedy=f"pip install 'saucier[{one.kind}]', or leave kind: {one.kind} out")


def build_reporters(training: Training, folder: Path, first: int, given: Sequence[Reporter] | None, *,
                    writes: bool, settings: Mapping[str, Any] | None = None) -> Reporters:
    """Return the reporters: those given (by default the screen), and the files of a run that goes on after `first`.

    A process that does not write has none. `settings`: what decides the run, for those who show it. Raises `InputError`
    when events are required and cannot be written, and for a reporter whose package is missing.
    """
    check_reporters(training)
    if not writes:
        return Reporters()
    every = training.log_every
    files: list[Reporter] = [MetricsFile(folder / METRICS, every, first)]
    files += [Events(folder / EVENTS, every, first)] if check_events(training.events) else []
    run = ReportedRun(folder, first, every, dict(settings or {}))
    files += [(LOGGERS.get(one.kind) or find_builder(one))(one, run) for one in training.reporters]
    return Reporters(*([choose_screen(training.steps, every)] if given is None else given), *files)
