"""What a model costs on this machine: milliseconds, in turn with the teacher, and memory, in a process of its own.

Times are of `task.predict`, all that a person waits for but the reading of the rows.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from saucier import machine
from saucier.devices import choose_autocast_dtype, choose_real_device
from saucier.errors import InputError, WorkError
from saucier.generation.decoding import Native
from saucier.generation.formats import writes_tokens
from saucier.generation.native_encoder import use_native
from saucier.jobs.compression.measurement import Cost, Speed, Subject, draw_rows, prepare
from saucier.jobs.compression.settings import Measuring, read_compression
from saucier.jobs.finetuning.data import Splits, read_splits
from saucier.jobs.finetuning.predict import open_task
from saucier.model import Transformer
from saucier.tasks.build import build_task
from saucier.tasks.definitions import TaskConfig

FEWEST_ROUNDS = 3
"""Rounds that are made however long they take, beside the one that warms up."""
PROBE_PATIENCE = 600.0
"""Seconds after which the process that measures memory counts as failed."""


def measure_cost(folder: Path, subject: Subject, teacher: Subject, splits: Splits, settings: Path,
                 measure: Measuring) -> Cost:
    """Measure times in turn with the teacher, and the peak memory in a process of its own.

    Both models are moved to where the time is to be taken, and stay there.
    """
    if measure.device is not None:
        for one in (subject, teacher):
            one.opened.model.to(choose_real_device(measure.device))
    rows = draw_rows(splits.held_out, measure.rows)
    speeds = tuple(measure_speed(subject, teacher, rows, batch, measure) for batch in measure.batches)
    return Cost(machine=machine.describe_machine(), threads=torch.get_num_threads(), speeds=speeds,
                dtype=choose_autocast_dtype("auto", subject.opened.device)[0],
                peak=probe_memory(folder, settings, subject) if measure.memory else None)


def measure_speed(subject: Subject, teacher: Subject, rows: Sequence[Any], batch: int, measure: Measuring) -> Speed:
    """Let both answer the same rows, in turn; the first round warms up and does not count. So does the model by the
    kernels in C, where they run it.
    """
    sides = [(one.task, *prepare(one, rows, batch)) for one in (subject, teacher)]
    task, predictor, encoded = sides[0]
    if (view := find_native_view(subject.opened.model)) is not None:
        sides.append((task, replace(predictor, model=view, dtype="float32"), encoded))
    times: list[list[float]] = []
    end = time.perf_counter() + measure.seconds
    for number in range(measure.rounds + 1):
        if number > FEWEST_ROUNDS and time.perf_counter() > end:
            break
        found = [0.0] * len(sides)
        for side in range(len(sides)) if number % 2 else reversed(range(len(sides))):
            task, predictor, encoded = sides[side]
            begin = time.perf_counter()
            task.predict(predictor, rows, encoded)
            found[side] = 1000 * (time.perf_counter() - begin) / len(rows)
        times.append(found)
    kept = times[1:]
    ratios = [theirs / own for own, theirs, *_ in kept]
    by_kernels = [[found[-1], found[1] / found[-1]] for found in kept] if view is not None else []
    native, native_ratio = (statistics.median(one) for one in zip(*by_kernels, strict=True)) if by_kernels else (
        None, None)
    return Speed(batch=batch, milliseconds=statistics.median(found[0] for found in kept),
                 teacher=statistics.median(found[1] for found in kept), ratio=statistics.median(ratios),
                 low=min(ratios), high=max(ratios), native=native, native_ratio=native_ratio)


def find_native_view(model: Transformer) -> Transformer | None:
    """Return a model as the kernels in C read it, in the numbers that it is stored in; None where they cannot, and of
    models that write.
    """
    try:
        return None if writes_tokens(model) else use_native(model, Native())
    except (InputError, WorkError):  # a part that they lack, or no compiler; `saucier show --plan` says which
        return None


def probe_memory(folder: Path, settings: Path, subject: Subject) -> int:
    """Load a model in a process of its own and let it answer some rows; return the bytes that took at most.

    Raises `WorkError` where that process fails.
    """
    command = [sys.executable, "-m", __name__, str(folder), str(settings)]
    remedy = "leave it out with measure.memory=false"
    try:
        done = subprocess.run(command, input=json.dumps(subject.task.config.model_dump(mode="json")), check=True,
                              capture_output=True, text=True, timeout=PROBE_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise WorkError(f"measuring the memory took more than {PROBE_PATIENCE:g} s", remedy=remedy) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        raise WorkError(f"measuring the memory failed: {last[0]}", remedy=remedy) from error
    return int(done.stdout.strip().splitlines()[-1])


def main(folder: str, path: str) -> None:
    """Be that process: read the task from standard input, and print the bytes."""
    settings = read_compression(Path(path))
    task = build_task(TypeAdapter[TaskConfig](TaskConfig).validate_json(sys.stdin.read()))
    rows = draw_rows(read_splits(task, settings.data, seed=settings.seed).held_out, settings.measure.rows)
    machine.trim_memory()
    before = machine.resident_memory()
    machine.reset_peak_memory()
    subject = Subject(replace(open_task(folder), task=task), {}, {})
    if settings.measure.device is not None:
        subject.opened.model.to(choose_real_device(settings.measure.device))
    predictor, encoded = prepare(subject, rows, max(settings.measure.batches))
    task.predict(predictor, rows, encoded)
    print(max(0, machine.peak_resident_memory() - before))


if __name__ == "__main__":
    main(*sys.argv[1:])
