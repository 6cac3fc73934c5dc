"""The request and the result of a calibration, and `calibrate`, which measures in a process of its own. No torch here.

A process of its own, so that the memory seen is that of training alone, and a failure there harms nothing here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.cost.workload import Workload
from saucier.errors import WorkError
from saucier.recipes import Recipe

RATE_SCALE = 1e-3
"""Factor on the learning rate while measuring: the weights hardly move, so that nothing overflows."""
CalibrationMethod = Literal["whole", "layers", "products"]
PATIENCE = 300.0
"""Seconds after which a calibration counts as failed."""


class CalibrationJob(Config):
    """What is to be measured."""

    recipe: dict[str, Any]
    """All values of the recipe."""
    rows: str
    """File of batches, as `workload.save` writes it."""
    ids: dict[str, Any]
    """The fields of `objectives.base.TokenIds`."""
    seconds: float
    """Time to spend, with starting; half of it is for measuring in any case, and two updates and an evaluation are made
    even where they take longer."""
    begun: float = Field(default_factory=time.time)
    """When the time began, as `time.time` counts."""
    device: str = "cpu"
    """Where to run, as torch calls it."""
    threads: int | None = None
    """Threads that may take part; None: as many as torch takes by itself."""


class Calibration(Config):
    """What was measured, scaled to the whole model."""

    dtype: str
    """The number format that was chosen."""
    how: CalibrationMethod
    """What was measured: the whole model, one and two layers of it, or only a product of matrices."""
    micro_seconds: float
    """Forward and backward of one micro-batch."""
    update_seconds: float
    """The optimizer's step."""
    evaluation_seconds: float
    """Evaluation, a token."""
    growth: int
    """Bytes that training takes on top of the program."""
    base: int
    """Bytes of the program before it holds a model."""
    machine: str
    """One line about the machine."""
    threads: int
    """Threads that took part."""

    def step_seconds(self, recipe: Recipe, work: Workload) -> float:
        """Return what one update takes: its micro-batches, and the optimizer's step."""
        rows = max(len(batch) for batch in work.batches)
        return -(-rows // (recipe.training.micro_batch or rows)) * self.micro_seconds + self.update_seconds


class CalibrationTimeoutError(WorkError):
    """The measuring process did not end in time: the machine is busy, or the model is very large for it."""


def calibrate(recipe: Recipe, workload: Workload, *, seconds: float = 5.0, device: str = "cpu",
              threads: int | None = None) -> Calibration:
    """Measure a recipe on this machine. Raises `WorkError` when the measuring process fails."""
    with TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        workload.save(rows)
        job = CalibrationJob(recipe=recipe.as_dict(), rows=str(rows), ids=workload.ids, seconds=seconds, device=device,
                             threads=threads)
        return Calibration.model_validate_json(run_probe(job))


def run_probe(job: CalibrationJob) -> str:
    """Run the measuring process and return what it prints."""
    command = [sys.executable, "-m", "saucier.cost.probe"]
    try:
        done = subprocess.run(command, input=job.model_dump_json(), capture_output=True, text=True, timeout=PATIENCE,
                              check=True)
    except subprocess.TimeoutExpired as error:
        raise CalibrationTimeoutError(f"the calibration took more than {PATIENCE:g} s",
                                 remedy="plan with --no-calibrate") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise WorkError(f"the calibration failed: {last[0]}", remedy="plan with --no-calibrate") from error
    return done.stdout.strip().splitlines()[-1]
