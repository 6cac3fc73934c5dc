"""Doing the trials: one after the other, or side by side on Ray. What is finished is not done again.

A trial is a function of its data alone, so both ways give the same results (with the same number of threads).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from saucier.comparison.judging import judged
from saucier.comparison.preparation import Trial
from saucier.comparison.scores import Scores, read_scores
from saucier.errors import InputError, SaucierError
from saucier.files import write_atomically
from saucier.inspection.machine import cores
from saucier.runs.cook import cook
from saucier.runs.folder import RunFolder, open_run
from saucier.runs.job import Wishes
from saucier.text.tokenizer import load_tokenizer


@dataclass(frozen=True, slots=True)
class Done:
    """A finished trial."""

    trial: Trial
    scores: Scores
    seconds: float
    """Time that it took now; 0 where it was finished before."""


def conduct(trial: Trial, threads: int) -> Done:
    """Train and score one run, or go on where it stopped. Raises as `cook` does."""
    import torch

    found = read_scores(trial.folder, trial.judge)
    if found is not None:
        open_run(trial.folder, trial.recipe)  # refuses another run
        return Done(trial, found, 0.0)
    torch.set_num_threads(threads)
    begin = time.perf_counter()
    folder, _ = open_run(trial.folder, trial.recipe)
    if trial.tokenizer is not None and not (folder.tokenizer / "tokenizer_config.json").is_file():
        load_tokenizer(trial.tokenizer).save(folder.tokenizer)
    take_packed_text(folder)
    cook(trial.recipe, trial.folder, Wishes(calibrate=False, quiet=True))
    found = judged(trial)
    found.write(trial.folder)
    return Done(trial, found, time.perf_counter() - begin)


def take_packed_text(folder: RunFolder) -> None:
    """Copy the text as the arm's first run has packed it; seeds change nothing of it."""
    first, own = RunFolder(folder.path.parent / "seed-0"), folder.data_file.parent
    if first.data_file.is_file() and not own.exists():
        write_atomically(own, partial(copied, first.data_file.parent))


def copied(source: Path, target: Path) -> None:
    """Copy a folder."""
    shutil.copytree(source, target)


def conducted(trials: list[Trial], *, workers: int = 1, threads: int | None = None) -> Iterator[Done]:
    """Yield the trials as they are finished; in their order with one worker.

    `threads` are those of one run; None: all cores, shared by the workers.
    Raises `InputError` for several workers without Ray.
    """
    each = threads_of_a_run(workers, threads)
    if workers == 1:
        yield from (conduct(trial, each) for trial in trials)
    else:
        yield from side_by_side(trials, workers, each)


def threads_of_a_run(workers: int, wanted: int | None) -> int:
    """Return the threads of one run: as wanted, or all cores shared by the runs that go side by side."""
    return wanted or max(1, cores() // workers)


def side_by_side(trials: list[Trial], workers: int, threads: int) -> Iterator[Done]:
    """Let Ray do `workers` trials at a time, on this machine or on the cluster that RAY_ADDRESS names.

    The machines of a cluster must see the same folders.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("runs side by side need Ray, which is not installed", where="--workers",
                         remedy="pip install 'saucier[ray]', or leave it out")
    import ray

    own = None if "RAY_ADDRESS" in os.environ else workers
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, num_cpus=own)
    remote, left = ray.remote(num_cpus=1)(conduct), list(reversed(trials))
    waiting: list[Any] = []
    try:
        while left or waiting:
            while left and len(waiting) < workers:
                waiting.append(remote.remote(left.pop(), threads))
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, SaucierError) else error) from error
    finally:
        ray.shutdown()
