"""The loss on held-out data: exact sums over every target, whatever the batches and the number of processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from saucier.objectives.base import Batch, Corruption, Objective
from saucier.training.precision import moved
from saucier.training.processes import Processes

HELD_OUT_STEP = 2**31
"""Step number for the corruption of held-out rows: the same at every evaluation, never that of an update."""
NAMES = ("tokens", "sentences", "nll", "correct", "sentences_correct")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Scores a model on rows that can be read again and again (`EvaluationRows`, `EvaluationPairs`, or a list)."""

    rows: Iterable[Any]
    corruption: Corruption[Any]
    objective: Objective
    seed: int = 0
    processes: Processes = field(default_factory=Processes)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Return `loss`, `nats` (sum), `targets`, `accuracy`; and `sentence_accuracy` where sentences are learned."""
        return scores(totals(model, self.objective, self.batches(), self.processes))

    def batches(self) -> Iterator[Batch]:
        """Give the share of this process, corrupted the same way every time."""
        for number, rows in enumerate(self.rows):
            if number % self.processes.world == self.processes.rank:
                yield self.corruption(rows, seed=self.seed, step=HELD_OUT_STEP + number)


def totals(model: nn.Module, objective: Objective, batches: Iterable[Batch],
           processes: Processes) -> dict[str, tuple[float, float]]:
    """Add up (total, targets) of every part and figure, over all processes."""
    sums: dict[str, float] = {name: 0.0 for part in NAMES for name in (part, f"{part}/n")}
    device, training = next(model.parameters()).device, model.training
    model.eval()
    with torch.no_grad():
        for batch in batches:
            loss = objective(model, moved(batch, device))
            for name, part in [*loss.parts.items(), *loss.figures.items()]:
                sums[name] += float(part.total)
                sums[f"{name}/n"] += part.weight
    model.train(training)
    sums = processes.sums(sums)
    return {name: (sums[name], sums[f"{name}/n"]) for name in NAMES}


def scores(sums: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Turn sums into figures. `loss` is without label smoothing, and holds the sentence loss where there is one."""
    nats, targets = sums["nll"]
    wrong, sentences = sums["sentences"]
    found = {"loss": nats / max(1.0, targets) + wrong / max(1.0, sentences), "nats": nats, "targets": targets,
             "accuracy": sums["correct"][0] / max(1.0, targets)}
    return found | ({"sentence_accuracy": sums["sentences_correct"][0] / sentences} if sentences else {})
