"""Reporting a training run: a bar on a terminal or in a notebook, or lines; metrics.jsonl; TensorBoard events; other
programs.
"""

from __future__ import annotations

import html
import importlib.util
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from saucier.config.registry import find_builder
from saucier.errors import InputError
from saucier.files import parse_json, report_disk_errors, write_text
from saucier.machine import in_notebook
from saucier.plain import format_duration
from saucier.training.hyperparameters import MLflow, Training, WeightsAndBiases

METRICS, EVENTS = "metrics.jsonl", "tensorboard"
FIGURES = ("loss", "rate", "gradient_norm", "tokens_per_second")
"""What of an update is drawn as a curve."""
LONGEST_VALUE = 500
"""Letters of a setting that MLflow takes."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One update of the weights."""

    step: int
    steps: int
    loss: float
    """Mean over the targets of the whole batch, in nats; with several parts their sum."""
    rate: float
    """Learning rate of the update."""
    gradient_norm: float
    tokens: int
    """Targets so far: what the loss is the mean over."""
    tokens_read: int
    """Tokens that the model read so far."""
    tokens_per_second: float
    """Of those that are read, padding left out: of this update."""
    seconds: float
    """Time so far, over all parts of the run."""

    @property
    def seconds_left(self) -> float:
        """How long it takes at the pace so far."""
        return self.seconds / self.step * (self.steps - self.step)


class Reporter:
    """Hears what happens; one's own inherits this, and answers what it cares for."""

    def progress(self, progress: Progress) -> None:
        """After every update."""

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """After every evaluation."""

    def note(self, text: str) -> None:
        """What a person should know: a choice, a fallback, a reason."""

    def close(self) -> None:
        """At the end, however it came."""


def format_evaluation(step: int, scores: Mapping[str, float]) -> str:
    """Say an evaluation in one line."""
    return f"step {step}: held-out " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())


class Lines(Reporter):
    """Plain lines, one every n steps."""

    def __init__(self, every: int, stream: TextIO | None = None) -> None:
        """Write to `stream`, by default standard error."""
        self.every, self.stream = every, stream or sys.stderr

    def progress(self, progress: Progress) -> None:
        """Write a line when it is time."""
        if progress.step % self.every == 0 or progress.step in (1, progress.steps):
            self.note(f"step {progress.step}/{progress.steps}: loss {progress.loss:.4f}, rate {progress.rate:.2e}, "
                      f"{progress.tokens_per_second:.0f} tokens/s, {progress.seconds_left:.0f} s left")

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Write a line."""
        self.note(format_evaluation(step, scores))

    def note(self, text: str) -> None:
        """Write a line."""
        print(text, file=self.stream, flush=True)


class Bar(Reporter):
    """A progress bar on a terminal."""

    def __init__(self, steps: int) -> None:
        """Show an empty bar."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(TextColumn("training"), BarColumn(), MofNCompleteColumn(),
                                TextColumn("{task.fields[facts]}"),
                                TimeRemainingColumn(), console=Console(stderr=True))
        self.task = self.bar.add_task("training", total=steps, facts="")
        self.bar.start()

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        facts = f"loss {progress.loss:.4f}  rate {progress.rate:.1e}  {progress.tokens_per_second:.0f} tokens/s"
        self.bar.update(self.task, completed=progress.step, facts=facts)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Print a line above the bar."""
        self.note(format_evaluation(step, scores))

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.stop()


class NotebookBar(Reporter):
    """A bar in a notebook, below the lines of this run: one output, which is shown again when something is new."""

    SECONDS = 0.25
    """Between two updates of the bar: a browser has to draw each."""

    def __init__(self, steps: int) -> None:
        """Show an empty bar."""
        from IPython.display import display

        self.steps, self.step, self.facts = steps, 0, ""
        self.lines: list[str] = []
        self.drawn = time.monotonic()
        self.handle = display(self, display_id=True)

    def progress(self, progress: Progress) -> None:
        """Move the bar, when it is time."""
        self.step, self.facts = progress.step, (
            f"{progress.step:,} of {progress.steps:,}, loss {progress.loss:.4f}, rate {progress.rate:.1e}, "
            f"{progress.tokens_per_second:.0f} tokens/s, {format_duration(progress.seconds_left)} left")
        if time.monotonic() - self.drawn > self.SECONDS:
            self.draw()

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Add a line above the bar."""
        self.note(format_evaluation(step, scores))

    def note(self, text: str) -> None:
        """Add a line above the bar."""
        self.lines.append(text)
        self.draw()

    def close(self) -> None:
        """Leave the bar as it is."""
        self.draw()

    def draw(self) -> None:
        """Show it again in its place."""
        self.drawn = time.monotonic()
        self.handle.update(self)

    def __repr__(self) -> str:
        """Return it as text, for what shows no HTML."""
        return "\n".join([*self.lines, f"training {self.facts}"])

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self.lines)
        return (f'<div style="font-family:monospace">{lines}<div>training <progress value="{self.step}" '
                f'max="{self.steps}"></progress> {html.escape(self.facts)}</div></div>')


class MetricsFile(Reporter):
    """`metrics.jsonl`: one JSON object a line, `{"step", "loss", ...}` or `{"step", "evaluation": {...}}`."""

    def __init__(self, path: Path, every: int, first: int) -> None:
        """Go on after update `first`: later lines, of updates that will be done again, are removed."""
        self.path, self.every = path, every
        with report_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.kept = [line for line in read_lines(path) if line["step"] <= first]
        write_text(path, "".join(json.dumps(line) + "\n" for line in self.kept))

    def progress(self, progress: Progress) -> None:
        """Add a line when it is time."""
        if progress.step % self.every == 0 or progress.step in (1, progress.steps):
            self.add(asdict(progress))

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Add a line, unless this was done before the run was stopped: averaged weights are measured again."""
        line = {"step": step, "evaluation": dict(scores)}
        if line not in self.kept:
            self.add(line)

    def add(self, line: dict[str, Any]) -> None:
        """Append one line; a full disk is one clear error."""
        with report_disk_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a metrics file; a line that is none, such as a last one cut short by a crash, is left out."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            line = parse_json(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


class Events(Reporter):
    """TensorBoard events."""

    def __init__(self, folder: Path, every: int, first: int) -> None:
        """Go on after update `first`."""
        from torch.utils.tensorboard import SummaryWriter

        self.every = every
        self.writer = SummaryWriter(str(folder), purge_step=first or None)

    def progress(self, progress: Progress) -> None:
        """Add the figures when it is time."""
        if progress.step % self.every == 0 or progress.step in (1, progress.steps):
            for name in FIGURES:
                self.writer.add_scalar(f"training/{name}", getattr(progress, name), progress.step)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        """Add the scores."""
        for name, value in scores.items():
            self.writer.add_scalar(f"evaluation/{name}", value, step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


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


def choose_screen(steps: int, every: int) -> Reporter:
    """Return a bar where somebody looks on, in a notebook or on a terminal; else lines."""
    if in_notebook():
        return NotebookBar(steps)
    return Bar(steps) if sys.stderr.isatty() else Lines(every)


def shows_bar() -> bool:
    """Say whether `choose_screen` gives a bar, which a silent job keeps."""
    return in_notebook() or sys.stderr.isatty()


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
