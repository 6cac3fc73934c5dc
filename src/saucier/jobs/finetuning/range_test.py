"""A range test: the learning rate rises from update to update until the loss grows, on a model that is thrown away.

Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks", §3.3, arXiv:1506.01186; the mean of the loss
as in Howard and Gugger 2020, arXiv:2002.04688.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from saucier.config.base import Config
from saucier.devices import choose_autocast_dtype
from saucier.errors import InputError, WorkError
from saucier.files import read_object, write_json
from saucier.jobs.finetuning.job import FinetuningJob, plan_training, prepare_model
from saucier.jobs.finetuning.settings import Finetuning, RangeTest
from saucier.jobs.run.console import Console
from saucier.training.optimizers import build_optimizer
from saucier.training.update import Updater

RANGE_FILE = "range_test.json"
KEPT = 0.9
"""Of the old mean of the loss, what an update keeps."""
GROWTH = 4.0
"""Times its lowest mean, where the loss has left the ground and the test ends."""
BELOW_LOWEST = 10.0
"""The rate is that of the lowest mean by this: there the loss falls fast, and nothing is near breaking."""


class RangeResult(Config):
    """What a range test found: `range_test.json`."""

    rates: tuple[float, ...]
    """Of each update."""
    losses: tuple[float, ...]
    """The mean of the loss over the last updates, at each rate."""
    chosen: float
    """The rate to train at."""


def find_rate(job: FinetuningJob) -> tuple[Finetuning, RangeResult]:
    """Test, or read what a test found before; return the settings with the rate that it tells.

    Raises `InputError` where the loss grows from the first update on.
    """
    assert job.settings.range_test is not None, "only then"
    path = job.folder.path / RANGE_FILE
    found = read_result(path) if path.is_file() else run_test(job, job.settings.range_test)
    job.run.processes.write_once(partial(write_json, path, found.model_dump(mode="json")))
    job.run.console.say(f"range test: {len(found.rates)} rates from {found.rates[0]:.1e} to {found.rates[-1]:.1e}; "
                        f"training at {found.chosen:.1e}, a tenth of that of the lowest loss")
    training = job.settings.training
    optimizer = training.optimizer.model_copy(update={"learning_rate": found.chosen})
    return job.settings.model_copy(update={
        "training": training.model_copy(update={"optimizer": optimizer}), "range_test": None}), found


def read_result(path: Path) -> RangeResult:
    """Read what a test found. Raises `InputError` for a damaged file."""
    try:
        return RangeResult.model_validate(read_object(path))
    except ValidationError as error:
        raise InputError(f"is no range test: {error.errors()[0]['msg']}", where=str(path),
                         remedy="remove it, so that the rate is tested again") from error


def run_test(job: FinetuningJob, test: RangeTest) -> RangeResult:
    """Train a model of its own at rising rates."""
    trial = copy.copy(job)
    trial.run = replace(job.run, console=Console(silent=True))
    prepare_model(trial)
    points = list(measure_rates(trial, test))
    lowest = min(points, key=lambda point: point[1])[0]
    return RangeResult(rates=tuple(rate for rate, _ in points), losses=tuple(loss for _, loss in points),
                       chosen=float(f"{lowest / BELOW_LOWEST:.2g}"))


def measure_rates(trial: FinetuningJob, test: RangeTest) -> Iterator[tuple[float, float]]:
    """Yield each rate with the mean of the loss before it is used."""
    data, training = plan_training(trial)
    trial.model.train()
    optimizer = build_optimizer(training.optimizer, trial.model, data.objective.modules, training.layer_rates,
                                module_rates=data.objective.module_rates)
    dtype, _ = choose_autocast_dtype(training.dtype, next(trial.model.parameters()).device)
    updater = Updater(trial.model, data, trial.run.processes, dtype, seed=training.seed,
                      micro_batch=training.micro_batch, clip=training.clip, failures=trial.folder.path / "failures")
    total, lowest, base = 0.0, float("inf"), training.optimizer.learning_rate
    for step in range(test.steps):
        rate = test.low * (test.high / test.low) ** (step / (test.steps - 1))
        try:
            loss = updater.gradients(step).loss
        except WorkError:  # not finite: beyond the rates that this model takes
            return
        total = KEPT * total + (1 - KEPT) * loss
        mean = total / (1 - KEPT ** (step + 1))
        lowest = min(lowest, mean)
        yield rate, mean
        if mean > GROWTH * lowest:
            return
        optimizer.step(rate / base)
        updater.forget()
