"""The loss on held-out data: exact sums over every target, whatever the batches and the number of processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from saucier.devices import move_batch
from saucier.generation.packed_weights import inference_view
from saucier.objectives.base import Batch, Corruption, Objective
from saucier.text.rows.batch import take_share
from saucier.training.processes import Processes

HELD_OUT_STEP = 2**31
"""Step number for the corruption of held-out rows: the same at every evaluation, never that of an update."""
NLL, CORRECT = "nll", "correct"
"""Figures of the main part: its loss without label smoothing, and how many first choices were right."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Scores a model on rows that can be read again and again (`PackedEvaluation`, `PairEvaluation`, or a list)."""

    rows: Iterable[Any]
    corruption: Corruption[Any]
    objective: Objective
    seed: int = 0
    processes: Processes = field(default_factory=Processes)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return `loss`, `nats` (sum), `targets`, `accuracy`, and the mean of each further figure of the objective."""
        return average_scores(self.objective, sum_scores(model, self.objective, self.batches(), self.processes))

    def batches(self) -> Iterator[Batch]:
        """Give the share of this process, corrupted the same way every time."""
        for number, rows in enumerate(self.rows):
            mine = self.mine(number, rows)
            if len(mine):
                yield self.corruption(mine, seed=self.seed, step=HELD_OUT_STEP + number)

    def mine(self, number: int, rows: Any) -> Any:
        """Return what this process measures of a batch: all or nothing, or its rows where they go on in the next."""
        rank, world = self.processes.rank, self.processes.world
        if world > 1 and getattr(rows, "continues", None) is not None:
            return rows.select(take_share(len(rows), rank, world))
        return rows if number % world == rank else ()


def sum_scores(model: nn.Module, objective: Objective, batches: Iterable[Batch],
               processes: Processes) -> dict[str, tuple[float, float]]:
    """Add up (total, targets) of every part and figure, over all processes."""
    names = (*objective.parts, NLL, CORRECT, *objective.figures)
    sums: dict[str, float] = {name: 0.0 for part in names for name in (part, f"{part}/n")}
    device = next(model.parameters()).device
    with torch.no_grad(), evaluation_mode(model) as evaluated:
        for batch in batches:
            loss = objective(evaluated, move_batch(batch, device))
            for name, part in [*loss.parts.items(), *loss.figures.items()]:
                sums[name] += float(part.total)
                sums[f"{name}/n"] += part.weight
    sums = processes.sums(sums)
    return {name: (sums[name], sums[f"{name}/n"]) for name in names}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the model in evaluation mode; of one that `compile()` hooked into, itself, so that its code serves.

    Compiled code belongs to the module that it was made for, and a training run has its model to itself.
    """
    if model._compiled_call_impl is None:
        yield inference_view(model)
        return
    training = model.training
    model.eval()
    try:
        yield model
    finally:
        model.train(training)


def average_scores(objective: Objective, sums: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Turn sums into figures. `loss` adds up the means of all parts, that of the main one without label smoothing.

    Where the main part is no likelihood, `nats` is its sum all the same.
    """
    means = {name: total / max(1.0, count) for name, (total, count) in sums.items()}
    main = NLL if sums[NLL][1] else objective.parts[0]  # what is no likelihood has no `nll`: squared errors, spans
    nats, targets = sums[main]
    loss = objective.loss_factor * means[main] + sum(means[name] for name in objective.parts[1:])
    found = {"loss": loss, "nats": nats, "targets": targets, "accuracy": means[CORRECT]}
    return found | {name: means[name] for name in objective.figures if sums[name][1]}


@dataclass(frozen=True, slots=True)
class MixedEvaluator:
    """Scores a model on each part of a mixture, or of a text in several languages; the loss is the mean, by weight."""

    weights: tuple[float, ...]
    parts: tuple[Evaluator | MixedEvaluator, ...]
    names: tuple[str, ...]
    """What to call the loss of each part."""

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of each part in turn."""
        for part in self.parts:
            yield from part.batches()

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return the scores of an `Evaluator`, `accuracy` over all targets, and the losses of each part by its name."""
        found = [part(model) for part in self.parts]
        sums = {name: sum(one[name] for one in found) for name in ("nats", "targets")}
        right = sum(one["accuracy"] * one["targets"] for one in found)
        pairs = zip(self.weights, found, strict=True)
        return {"loss": sum(weight * one["loss"] for weight, one in pairs) / sum(self.weights), **sums,
                "accuracy": right / max(1.0, sums["targets"]),
                **{f"{name}_{key}": value for name, one in zip(self.names, found, strict=True)
                   for key, value in one.items() if key.endswith("loss")}}
