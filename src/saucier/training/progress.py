"""What hears of a training run: a bar on a terminal or in a notebook, lines, metrics.jsonl, TensorBoard events."""

from __future__ import annotations

import html
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from saucier.files import parse_json, report_disk_errors, write_text
from saucier.machine import in_notebook
from saucier.plain import format_duration

METRICS, EVENTS = "metrics.jsonl", "tensorboard"
FIGURES = ("loss", "rate", "gradient_norm", "tokens_per_second")
"""What of an update is drawn as a curve."""


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
    """Say an evaluation in one line: means and shares; of the sums only how many targets there were."""
    targets = f" ({scores['targets']:,.0f} targets)" if "targets" in scores else ""
    return f"step {step}: held-out " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()
                                                if name not in SUMS) + targets


SUMS = ("nats", "targets")
"""Figures of an evaluation that a program adds up; a person reads the means."""


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


def choose_screen(steps: int, every: int) -> Reporter:
    """Return a bar where somebody looks on, in a notebook or on a terminal; else lines."""
    if in_notebook():
        return NotebookBar(steps)
    return Bar(steps) if sys.stderr.isatty() else Lines(every)


def shows_bar() -> bool:
    """Say whether a silent job keeps its bar: on a terminal, where nothing of it stays in a page."""
    return sys.stderr.isatty() and not in_notebook()
