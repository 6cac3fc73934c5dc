"""The measuring side of `calibrate`: a few real updates of a model, timed, in a process of its own.

Of a model too large for two layers, one product of matrices is timed.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.nn.functional import linear

from saucier import config as c
from saucier import machine
from saucier.config import flops_per_token, parameters
from saucier.cost.calibration import RATE_SCALE, Calibration, CalibrationJob, CalibrationMethod
from saucier.cost.memory import estimate_memory
from saucier.cost.workload import count_batch_tokens, load_workload, model_memory
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, keep_freed_memory
from saucier.model import build
from saucier.objectives.base import ObjectiveInputs, TokenIds
from saucier.objectives.build import build_objectives, join_objectives
from saucier.parts.stack import choose_activations
from saucier.recipes import Recipe
from saucier.text.rows.batch import PairRows, Rows
from saucier.training.evaluation import sum_scores
from saucier.training.optimizers import Optimizer, build_optimizer
from saucier.training.processes import Processes
from saucier.training.update import TrainingData, Updater

ROWS = 1024
TRIES = 7
SPARE = 2**22
"""Parameters of the vector that the optimizer's step is timed on."""


def product_flops(dim: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations a second of a product of [1024, dim] and [dim, 4 dim]."""
    left = torch.randn(ROWS, dim, device=device).to(dtype)
    right = torch.randn(4 * dim, dim, device=device).to(dtype)
    return 2.0 * ROWS * dim * 4 * dim / median_seconds(lambda: linear(left, right))


def median_seconds(work: Callable[[], object]) -> float:
    """Return the median seconds of some tries, after one that does not count."""
    return statistics.median([time_work(work) for _ in range(TRIES + 1)][1:])


FRAGMENTED = 1.05
"""Memory that has grown by more in a few steps has holes, left by batches of many shapes; it will go on growing."""
INFORMATIVE = 6
"""Fewer steps than these say nothing about later ones."""
SATURATED = 800
"""Steps after which it hardly grows any more (seen on Multi30k: 2.7 GB after 300, 3.8 after 700, 3.9 after 800)."""
WARM_UP_STEPS = 2
"""Updates that are not timed: the first ones fetch memory and make the optimizer's state. Half of them, if fewer."""
FEWEST = 2
"""Updates that are made, however long they take."""
MEASURING = 0.5
"""Part of the time that is spent on measuring, however long it took to start."""
SHARE = 0.1
"""Part of a run's updates that is measured at most."""
REACHED = 0.5
"""Part of the speed of one product of matrices that a model comes to; only decides what is small enough to try."""
SQUARE = 256
"""Width of that product."""
CROWDED = 0.5
"""A model that needs more than this share of the free memory is measured in parts."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured of one size of model."""

    micro: float
    """Seconds of forward and backward, a token."""
    update: float
    """Seconds of the optimizer's step."""
    evaluate: float
    """Seconds of an evaluation, a token."""
    growth: float
    """Bytes on top of the program."""
    flops: float
    """Forward FLOPs of a token."""
    parameters: float
    """Number of parameters."""


@dataclass(frozen=True, slots=True)
class FixedBatches:
    """A few batches, given again and again."""

    kept: tuple[Any, ...]
    counts: dict[str, int]

    @property
    def steps_per_epoch(self) -> int:
        """How many there are."""
        return len(self.kept)

    def rows(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Give one of them."""
        return self.kept[step % len(self.kept)]

    def __getitem__(self, step: int) -> Any:
        """Give one of them."""
        return self.rows(step)


def measure_job(job: CalibrationJob) -> Calibration:
    """Do the measuring of a job. Runs in the child process."""
    keep_freed_memory()
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    recipe = Recipe.model_validate(job.recipe)
    model = recipe.model_for(job.ids["vocab"])
    batches = load_workload(Path(job.rows))
    device = torch.device(job.device)
    dtype, _ = choose_autocast_dtype(recipe.training.dtype, device)
    micro = recipe.training.micro_batch or max(len(batch) for batch in batches)
    for number_format in (torch.float32, torch.bfloat16):  # starts the libraries, so that their memory is the program's
        square = torch.ones(256, 256, dtype=number_format, device=device, requires_grad=True)
        (square @ square).sum().backward()
    base = machine.resident_memory()
    speed = REACHED * product_flops(SQUARE, getattr(torch, dtype), device)
    bench = Bench(recipe, TokenIds(**job.ids), dtype, device, 0 if device.type == "cuda" else base, speed)
    end = max(job.begun + job.seconds, time.time() + MEASURING * job.seconds)
    how, found = bench.measure(model, batches, micro, end)
    tokens = statistics.mean(count_batch_tokens(batch) for batch in cut_micro_batches(batches, micro))
    return Calibration(dtype=dtype, how=how, micro_seconds=found.micro * tokens, update_seconds=found.update,
                       evaluation_seconds=found.evaluate, growth=int(found.growth), base=base,
                       machine=machine.describe_machine(), threads=torch.get_num_threads())


def trial_flops(model: c.Transformer, length: int, tokens: int) -> float:
    """Return the operations of the fewest updates, and of an evaluation."""
    return (3 * FEWEST + 1) * flops_per_token(model, length) * tokens


def fits_memory(model: c.Transformer, tokens: int) -> bool:
    """Say whether a model can be tried in the memory that there is."""
    needed, free = estimate_memory(model, batch=1, length=tokens, training=True).total, machine.available_memory()
    return free is None or needed < CROWDED * free


def shrink_model(model: c.Transformer, layers: int) -> c.Transformer:
    """Return the same model with at most `layers` layers a stack."""
    stacks = {}
    for name in ("encoder", "decoder"):
        stack = getattr(model, name)
        if stack is not None:
            fewer = stack.layers.resized(lambda block: block, lambda times: min(layers, times))
            stacks[name] = stack.model_copy(update={"layers": fewer})
    return model.model_copy(update=stacks)


def cut_micro_batches(batches: tuple[Rows | PairRows, ...], rows: int) -> list[Rows | PairRows]:
    """Return micro-batches of `rows` rows."""
    return [batch.select(slice(0, rows)) for batch in batches]


@dataclass(frozen=True, slots=True)
class Bench:
    """What stays the same for every size of model that is measured."""

    recipe: Recipe
    ids: TokenIds
    dtype: AutocastDtype
    device: torch.device
    base: int
    """Bytes held before there was any model; what a smaller one has left in memory counts as the next one's."""
    speed: float
    """Floating-point operations a second that a model can be hoped to reach."""

    def measure(self, model: c.Transformer, batches: tuple[Any, ...], micro: int,
               end: float) -> tuple[CalibrationMethod, Measurement]:
        """Measure the whole model where that is possible, else two layers of it, else a product of matrices.

        `end`: when to end, as `time.time` counts.
        """
        length, affordable = self.recipe.training.length, self.speed * max(0.0, end - time.time())
        mean = statistics.mean(count_batch_tokens(batch) for batch in cut_micro_batches(batches, micro))
        if trial_flops(model, 1, round(mean)) < affordable and fits_memory(model, micro * length):
            return "whole", self.measure_training(model, cut_micro_batches(batches, micro), end)
        two = shrink_model(model, 2)
        rows = max(1, min(micro, int(affordable / 2 / trial_flops(two, length, length))))
        if not fits_memory(two, rows * length):
            return "products", self.guess(model, micro)
        middle = (time.time() + end) / 2
        parts = [self.measure_training(shrink_model(model, size), cut_micro_batches(batches, rows), until)
                 for size, until in ((1, middle), (2, end))]
        more = self.count_memory(model, micro) - self.count_memory(two, rows)
        return "layers", extrapolate(parts[0], parts[1], model, length=length, more=more)

    def count_memory(self, model: c.Transformer, rows: int) -> int:
        """Return the bytes that training needs, counted from the config."""
        return model_memory(model, self.recipe, rows, self.dtype).total

    def guess(self, model: c.Transformer, micro: int) -> Measurement:
        """Guess from the speed of one product and of AdamW on a few million parameters, and from counted memory."""
        vector = torch.nn.Parameter(torch.randn(SPARE, device=self.device))
        vector.grad = torch.randn_like(vector)
        speed = product_flops(model.dim, getattr(torch, self.dtype), self.device)
        seconds = median_seconds(torch.optim.AdamW([vector], fused=True).step) / SPARE
        flops, count = flops_per_token(model, self.recipe.training.length), parameters(model)
        memory = self.count_memory(model, micro)
        return Measurement(3 * flops / speed, count * seconds, flops / speed, memory, flops, count)

    def measure_training(self, model: c.Transformer, batches: list[Any], end: float) -> Measurement:
        """Build a model, train it until `end`, and return the means."""
        machine.reset_peak_memory()
        training = self.recipe.training
        given = ObjectiveInputs(self.ids, model, training.steps, training.length)
        corruption, objective = join_objectives(build_objectives(self.recipe.objective, given), training.seed)
        built = build(model, device=self.device).train()
        objective.bind(built)
        choose_activations([built, *objective.modules.values()], training.activations)
        first = largest_batch(batches)
        batches = [batches[first], *batches[:first], *batches[first + 1:]]
        training_data = TrainingData(FixedBatches(tuple(batches), {}), corruption, objective)
        optimizer = build_optimizer(training.optimizer, built, objective.modules)
        with TemporaryDirectory() as folder:
            updater = Updater(built, training_data, Processes(), self.dtype, 0, None, training.clip, Path(folder))
            micro, update, peaks = self.time_updates(updater, optimizer, end)

        def evaluation() -> None:
            with autocast(self.dtype, self.device):
                sum_scores(built, objective.at(0), [corruption(batches[0], seed=0, step=0)], Processes())

        evaluate = time_work(evaluation)
        if time.time() + evaluate < end:
            evaluate = time_work(evaluation)  # the first one fetched memory
        evaluate /= count_batch_tokens(batches[0])
        growth = max(steady_memory([peak - self.base for peak in peaks], training.steps),
                     self.peak() - self.base)
        flops = flops_per_token(model, training.length)
        return Measurement(micro, update, evaluate, growth, flops, parameters(model))

    def time_updates(self, updater: Updater, optimizer: Optimizer, end: float) -> tuple[float, float, list[int]]:
        """Update until the time is over.

        Returns the mean seconds of gradients, a token, and of the optimizer's step, and the peak after each step.
        Means, since a run pays for its slow updates too; of all tokens, since those of short batches take longer each.
        """
        micro, update, peaks, tokens = [], [], [], []
        for step in count_steps_until(end, math.ceil(SHARE * self.recipe.training.steps)):
            micro.append(time_work(lambda step=step: updater.gradients(step)))  # type: ignore[misc]
            update.append(time_work(lambda: optimizer.step(RATE_SCALE)))
            updater.forget()
            tokens.append(count_batch_tokens(updater.study.batches[step]))
            peaks.append(self.peak())
        warm = min(WARM_UP_STEPS, len(micro) // 2)
        return sum(micro[warm:]) / sum(tokens[warm:]), statistics.mean(update[warm:]), peaks

    def peak(self) -> int:
        """Return the peak so far: of the graphics card where the work is done there, else of the process."""
        return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else machine.peak_resident_memory()


def count_steps_until(end: float, most: int) -> Iterator[int]:
    """Count steps, as long as one more and an evaluation will end in time; `most` only counts after the warm ones."""
    step, longest = 0, 0.0
    while step < FEWEST or (step < max(most, WARM_UP_STEPS + 2) and time.time() + 1.5 * longest < end):
        begin = time.time()
        yield step
        longest, step = max(longest, time.time() - begin) if step else 0.0, step + 1


def largest_batch(batches: Sequence[Rows | PairRows]) -> int:
    """Return the number of the batch with the most places, padding included."""
    sizes = [batch.tokens.size if isinstance(batch, Rows) else batch.source.size + batch.target.size
             for batch in batches]
    return sizes.index(max(sizes))


def time_work(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes, the device's included."""
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def steady_memory(growth: list[int], last: int) -> float:
    """Return the memory after `last` steps, from that of the first ones.

    Batches of one shape need no more memory in later steps. Others do: more slowly all the time, as the logarithm of
    the step, whose slope is that of the second half.
    """
    count, half = len(growth), len(growth) // 2
    if count < INFORMATIVE or growth[-1] <= FRAGMENTED * growth[min(WARM_UP_STEPS, half)] or last <= count:
        return growth[-1]
    slope = (growth[-1] - growth[half]) / math.log(count / (half + 1))
    return growth[-1] + slope * max(0.0, math.log(min(last, SATURATED) / count))


def extrapolate(one: Measurement, two: Measurement, model: c.Transformer, *, length: int, more: float) -> Measurement:
    """Scale two sizes to the whole model: times by FLOPs, the optimizer by parameters.

    `more`: bytes that the whole model needs beyond the second size, as counted.
    """
    flops, count = flops_per_token(model, length), parameters(model)
    share = (flops - one.flops) / (two.flops - one.flops) if two.flops > one.flops else 1.0

    def along(left: float, right: float) -> float:
        return max(0.0, left + (right - left) * share)

    return Measurement(along(one.micro, two.micro), two.update * count / two.parameters,
                       along(one.evaluate, two.evaluate), two.growth + more, flops, count)


if __name__ == "__main__":
    print(measure_job(CalibrationJob.model_validate_json(sys.stdin.read())).model_dump_json())
