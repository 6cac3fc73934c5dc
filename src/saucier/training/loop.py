"""`train`, the one training loop: next batch, gradients, update, evaluate, save, resume; Ctrl-C and SIGTERM ask
it to save and stop. It does not know what is learned.

A run is a pure function of its recipe and its data: killed and resumed, it ends with the same weights (bit-equal
on a CPU).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, cast

from saucier.adaptation.quantization.maps import refuse_learning
from saucier.checkpoints.steps import (
    AVERAGE,
    FOLDER,
    BestCheckpoint,
    TrainingState,
    find_damage,
    latest_checkpoint,
    list_checkpoints,
    mark_and_prune,
    mark_best,
)
from saucier.devices import AutocastDtype, autocast, choose_autocast_dtype, keep_freed_memory
from saucier.errors import WorkError
from saucier.model import Transformer
from saucier.parts.favor import Redraws
from saucier.parts.stack import choose_activations
from saucier.training import resume as r
from saucier.training.hyperparameters import Training
from saucier.training.optimizers import Optimizer, build_optimizer, learning_rate_factor
from saucier.training.processes import Processes, join_processes
from saucier.training.progress import Progress, Reporter
from saucier.training.reporters import build_reporters
from saucier.training.update import Evaluate, HeldOut, TrainingData, Updater

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """While it is entered, remembers that a person or a scheduler wants the run to stop."""

    def __init__(self) -> None:
        """No signal came yet."""
        self.received = False
        self.before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupt:
        """Take the signals over; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            self.before = {one: signal.signal(one, self.receive) for one in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Give the signals back."""
        for one, handler in self.before.items():
            signal.signal(one, handler)  # type: ignore[arg-type]  # what signal.signal returned

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; let the second one through."""
        if self.received:
            raise KeyboardInterrupt
        self.received = True


FAILURES = "failures"
HARMLESS = ("micro_batch", "log_every", "keep", "events", "reporters", "save_every", "activations")
"""Keys of `Training` that may differ in a resumed run: they do not change what is learned."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """How a run ended. The model holds the last weights, or the averaged ones where they are the best."""

    steps: int
    reason: Literal["done", "patience", "time", "paused"]
    loss: float | None
    """Training loss of the last update; None when there was none left to do."""
    best: BestCheckpoint | None
    tokens: int
    """Targets learned from."""
    tokens_read: int
    """Tokens that the model read."""
    seconds: float
    dtype: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What must be equal for a run to be resumed, as JSON."""

    recipe: Mapping[str, Any]
    may_differ: Collection[str] = ()
    """Paths in it, such as `training.steps`, that need not be."""


def train(model: Transformer, study: TrainingData, training: Training, *, run_folder: Path,
          evaluate: Evaluate | HeldOut | None = None, reporters: Sequence[Reporter] | None = None,
          recipe: Mapping[str, Any] | Identity | None = None, until: int | None = None) -> TrainingResult:
    """Train a model in place, or go on where the run in `run_folder` stopped.

    Weights that were rounded in loading are the stored ones first, in float32 at most.
    `evaluate` gives held-out scores with a `loss`, by which the best checkpoint is chosen unless it says otherwise;
    `reporters` default to a bar or lines on standard error. `recipe` is whatever must be equal for the run to be
    resumed, as JSON; by default model and training. `until`: pause after so many steps, with a checkpoint.
    Raises `InputError` for a run started with another recipe; `WorkError` when the loss is not finite, when the disk is
    full, and when interrupted (after saving).
    """
    keep_freed_memory()
    identity = recipe if isinstance(recipe, Identity) else Identity(
        recipe or {"model": model.config.model_dump(mode="json"),
                   "training": training.model_dump(mode="json", exclude=set(HARMLESS))})
    with join_processes() as processes, Interrupt() as interrupt:
        run = Run.open_or_resume(model, study, training, run_folder, processes, reporters, identity)
        run.until = min(training.steps, until or training.steps)
        try:
            return run.go(HeldOut(evaluate) if callable(evaluate) else evaluate, interrupt)
        finally:
            run.reporter.close()


@dataclass(slots=True)
class Run:
    """A run under way."""

    model: Transformer
    training: Training
    folder: Path
    processes: Processes
    optimizer: Optimizer
    updater: Updater
    state: TrainingState
    reporter: Reporter
    redraws: Redraws
    until: int = 0
    """The step after which it ends or pauses."""
    loss: float | None = None

    @classmethod
    def open_or_resume(cls, model: Transformer, study: TrainingData, training: Training, folder: Path,
                       processes: Processes, reporters: Sequence[Reporter] | None, identity: Identity) -> Run:
        """Build what the loop needs, and put the newest whole checkpoint back where there is one."""
        refuse_learning(model)
        model.restore_stored()
        recipe = identity.recipe
        model.train()
        notes: list[str] = []
        modules = study.objective.modules
        models = [model, *modules.values()]
        choose_activations(models, training.activations)
        redraws = Redraws(models)
        optimizer = build_optimizer(training.optimizer, model, modules, training.layer_rates,
                                    module_rates=study.objective.module_rates)
        found = latest_checkpoint(folder, notes.append)
        if found is None:
            device = next(model.parameters()).device
            dtype, why = choose_autocast_dtype(training.dtype, device)
            notes.append(f"training on {device.type} in {why}")
            state = TrainingState(recipe=dict(recipe),  # all take the first one's choice
                                  dtype="bfloat16" if processes.agree(dtype == "bfloat16") else "float32")
        else:
            r.refuse_other_recipe(TrainingState.read(found).recipe, recipe, folder, identity.may_differ)
            state = r.restore_checkpoint(found, model, optimizer, study.objective, processes)
            state.recipe = dict(recipe)
            redraws.at(max(0, state.step - 1))
            if found == list_checkpoints(folder)[0]:
                processes.write_once(partial(mark_and_prune, folder, max(training.keep, training.average), state.best),
                                     wait=False)
            notes.append(f"resumed from {found}, {state.step} of {training.steps} steps done, in {state.dtype}")
        if training.compile:
            model.compile()
        reporter = build_reporters(training, folder, state.step, reporters, writes=processes.first, settings=recipe)
        for text in notes:
            reporter.note(text)
        updater = Updater(model, study, processes, cast(AutocastDtype, state.dtype), seed=training.seed,
                          micro_batch=training.micro_batch, clip=training.clip, failures=folder / FAILURES,
                          layer_drop=training.layer_drop)
        return cls(model, training, folder, processes, optimizer, updater, state, reporter, redraws)

    def go(self, evaluate: HeldOut | None, interrupt: Interrupt) -> TrainingResult:
        """Do the steps that are left."""
        while self.state.step < self.until and not (self.out_of_patience or self.out_of_time):
            self.update()
            self.evaluate_and_save(evaluate)
            if self.processes.any(interrupt.received) and self.state.step < self.training.steps:
                self.stop()
        if self.training.average > 1:
            self.average(evaluate)
        state = self.state
        return TrainingResult(state.step, self.reason(), self.loss, state.best, state.tokens, state.tokens_read,
                              state.seconds, state.dtype)

    def reason(self) -> Literal["done", "patience", "time", "paused"]:
        """Say why there are no more steps."""
        if self.out_of_patience:
            self.reporter.note(f"stopped at step {self.state.step}: {self.state.stale} evaluations, none better")
            return "patience"
        if self.until <= self.state.step < self.training.steps:
            return "paused"
        if self.state.step < self.training.steps:
            self.reporter.note(f"stopped at step {self.state.step} of {self.training.steps}: the time is over")
            return "time"
        return "done"

    @property
    def out_of_patience(self) -> bool:
        """Whether there were too many evaluations without a better one."""
        return self.training.patience is not None and self.state.stale >= self.training.patience

    @property
    def out_of_time(self) -> bool:
        """Whether the time is over for any process."""
        limit = self.training.seconds
        return limit is not None and self.processes.any(self.state.seconds >= limit)

    def steps_in_all(self) -> int:
        """Return how many updates the run will have: its steps, or fewer that its time pays at the pace so far."""
        limit, steps, done = self.training.seconds, self.training.steps, self.state.step
        if limit is None or done == 0:
            return steps
        spent = self.processes.mean(self.state.seconds)  # all must find the same rate
        return min(steps, max(done + 1, round(done * limit / spent)))

    def update(self) -> None:
        """One update of the weights."""
        begin, state, training = time.perf_counter(), self.state, self.training
        self.redraws.at(state.step)
        learned = self.updater.gradients(state.step)
        self.optimizer.step(learning_rate_factor(training.schedule, state.step, self.steps_in_all()))
        self.updater.study.objective.finish_update(self.model, state.step)
        self.updater.forget()
        spent = time.perf_counter() - begin
        state.step, state.seconds = state.step + 1, state.seconds + spent
        state.tokens, state.tokens_read = state.tokens + learned.targets, state.tokens_read + learned.tokens_read
        self.loss = learned.loss
        self.reporter.progress(Progress(
            step=state.step, steps=training.steps, loss=learned.loss, rate=self.optimizer.rate(),
            gradient_norm=learned.gradient_norm, tokens=state.tokens, tokens_read=state.tokens_read,
            tokens_per_second=learned.tokens_read / spent, seconds=state.seconds))

    def evaluate_and_save(self, evaluate: HeldOut | None) -> None:
        """Evaluate and save when it is time; an evaluation that is the best so far is always saved."""
        training, step = self.training, self.state.step
        last, better = step in (training.steps, self.until) or self.out_of_time, False
        if evaluate is not None and (last or step % training.evaluate_every == 0):
            better = self.evaluate(evaluate, f"step-{step}")
        ends = last or self.out_of_patience or self.out_of_time
        if ends or better or step % (training.save_every or training.evaluate_every) == 0:
            self.save()

    def evaluate(self, held_out: HeldOut, name: str) -> bool:
        """Evaluate; return whether the model is the best so far."""
        begin, state = time.perf_counter(), self.state
        with autocast(cast(AutocastDtype, state.dtype), next(self.model.parameters()).device):
            scores = held_out.evaluate(self.model)
        state.seconds += time.perf_counter() - begin
        self.reporter.evaluation(state.step, scores)
        has_moving_targets = self.updater.study.objective.has_moving_targets
        badness, best = held_out.badness(scores), state.best
        better = has_moving_targets or best is None or badness < (best.loss if best.badness is None else best.badness)
        state.stale = 0 if better else state.stale + 1
        if better:
            state.best = BestCheckpoint(name, state.step, scores["loss"],
                                        None if badness == scores["loss"] else badness)
        return better

    def save(self) -> Path:
        """Save a checkpoint, point to the best one, remove what is no longer kept. Only the first process writes."""
        objective = self.updater.study.objective
        found = r.collect_tensors(self.model, self.optimizer, objective, self.processes)

        def write() -> None:
            r.write_checkpoint(self.folder, self.model, objective.modules, found, self.state)
            mark_and_prune(self.folder, max(self.training.keep, self.training.average), self.state.best)

        self.processes.write_once(write)
        return self.folder / FOLDER / f"step-{self.state.step}"

    def stop(self) -> None:
        """Save and end, because of a signal."""
        done = f"interrupted after step {self.state.step} of {self.training.steps}; everything up to here is saved"
        raise WorkError(done, where=str(self.save()), remedy="start it again with the same recipe and folder to go on")

    def average(self, evaluate: HeldOut | None) -> None:
        """Average the newest checkpoints; keep the mean as `checkpoints/average`, the best one if it scores better."""
        folders = [folder for folder in list_checkpoints(self.folder)[:self.training.average]
                   if find_damage(folder) is None]
        target, stale = self.folder / FOLDER / AVERAGE, self.state.stale
        self.processes.write_once(lambda: r.write_average(self.folder, self.model, r.average_weights(folders),
                                                          self.state))
        self.reporter.note(f"averaged {len(folders)} checkpoints into {target}")
        r.load_weights_into(self.model, target)
        better = evaluate is not None and self.evaluate(evaluate, AVERAGE)
        self.state.stale = stale
        if better and self.state.best is not None:
            self.processes.write_once(partial(mark_best, self.folder, self.state.best), wait=False)
        if not better and evaluate is not None:
            r.load_weights_into(self.model, folders[0])
