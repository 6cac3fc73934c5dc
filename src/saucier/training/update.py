"""The gradients of one update: micro-batches, the loss over the whole global batch; summed, checked and clipped.

Letters: B batch, L length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saucier.checkpoints.weight_files import write_tensors
from saucier.devices import AutocastDtype, autocast, move_batch
from saucier.errors import WorkError
from saucier.files import write_atomically
from saucier.objectives.base import Batch, Corruption, Objective, WholeBatchObjective, count_tokens_read
from saucier.parts.stack import draw_layers
from saucier.text.rows.batch import Batches
from saucier.training.optimizers import trainable_parameters
from saucier.training.processes import Processes


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What is learned, and from what: the data, its corruption, and the loss."""

    batches: Batches[Any]
    corruption: Corruption[Any]
    objective: Objective


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What one update saw."""

    loss: float
    gradient_norm: float
    targets: int
    tokens_read: int
    """Tokens that the model read, on all processes."""


@dataclass(frozen=True, slots=True)
class Updater:
    """Computes the gradients of one step."""

    model: nn.Module
    study: TrainingData
    processes: Processes
    dtype: AutocastDtype
    seed: int
    micro_batch: int | None
    clip: float | None
    failures: Path
    """Folder for a batch whose loss is not finite."""
    layer_drop: float | None = None
    """Of the layers; None: as the model's config says."""

    def gradients(self, step: int) -> UpdateStats:
        """Fill the gradients of `step` (from 0). Raises `WorkError`, and saves the batch, when they are not finite."""
        objective = self.study.objective.at(step)
        micro = list(self.micro_batches(step))
        targets = self.targets(objective, [batch for _, batch in micro])
        sums = dict.fromkeys(targets, 0.0)
        with draw_layers([self.model, *self.study.objective.modules.values()], self.layer_drop, (self.seed, step)):
            self.learn(objective, step, micro, targets, sums)
        norm = self.processes.finish_gradients(self.parameters(), self.clip)
        mean = sum(total / max(1.0, targets[name]) for name, total in self.processes.sums(sums).items())
        if not (math.isfinite(mean) and math.isfinite(norm)):
            self.fail(step, mean, norm, [batch for _, batch in micro])
        read = self.processes.sums({"read": float(sum(sum(count_tokens_read(batch)) for _, batch in micro))})["read"]
        return UpdateStats(mean, norm, int(targets[objective.parts[0]]), int(read))

    def learn(self, objective: Objective, step: int, micro: list[tuple[int, Batch]], targets: dict[str, float],
              sums: dict[str, float]) -> None:
        """Add up the gradients of all micro-batches, and their losses in `sums`."""
        device = next(self.model.parameters()).device
        if isinstance(objective, WholeBatchObjective) and (self.micro_batch or self.processes.world > 1):
            self.learn_whole(objective, step, micro, targets, sums)
            return
        for row, batch in micro:
            self.seed_dropout(step, row)
            with autocast(self.dtype, device):
                loss = objective(self.model, move_batch(batch, device))
            loss.over(targets).backward()
            for name, part in loss.parts.items():
                sums[name] += float(part.total.detach())  # waits for the device

    def learn_whole(self, objective: WholeBatchObjective, step: int, micro: list[tuple[int, Batch]],
                    targets: dict[str, float], sums: dict[str, float]) -> None:
        """Add up the gradients of a loss that compares all texts of the global batch, read pass after pass.

        Texts are read and forgotten; the loss gives the gradient of each vector; then each pass is read again, with
        the same dropout, and takes those of its own vectors on. Memory is that of one pass. Exact.
        Source: Gao et al. 2021 (GradCache), §3.2, arXiv:2101.06983.
        """
        device, first = next(self.model.parameters()).device, micro[0][0] if micro else 0
        batches = [move_batch(batch, device) for _, batch in micro]
        rows = sum(len(batch["input_ids"]) for batch in batches)
        passes = objective.split(batches, self.micro_batch or rows) if batches else []

        def represent(number: int) -> Tensor:
            self.seed_dropout(step, first, number)
            with autocast(self.dtype, device):
                return objective.represent(self.model, passes[number])

        # with gradients on, though dropped: kernels that are chosen without them draw other dropout
        made = [represent(number).detach() for number in range(len(passes))]
        parts = [objective.keys(batch) for batch in batches]
        keys = {name: torch.cat([part[name] for part in parts]) for name in (parts[0] if parts else ())}
        vectors = torch.cat(made).requires_grad_() if made else torch.empty(0, device=device)
        own = {"vectors": objective.assemble(vectors, passes, keys), **keys} if made else {}
        whole = self.processes.gather_rows({name: value.detach() for name, value in own.items()})
        if not made:
            return
        other = whole.pop("vectors")
        losses = objective.losses(torch.cat([other[:first], own["vectors"], other[first + rows:]]), whole)
        (losses.sum() / targets[objective.parts[0]]).backward()
        sums[objective.parts[0]] += float(losses[first:first + rows].detach().sum())
        assert vectors.grad is not None, "every vector is compared"
        for number, gradient in enumerate(vectors.grad.split([len(one) for one in made])):
            represent(number).backward(gradient)

    def seed_dropout(self, *place: int) -> None:
        """Begin the random numbers of a pass: the same for the same rows at a step, so that nothing is remembered."""
        torch.manual_seed(int(np.random.SeedSequence([self.seed, *place]).generate_state(1, np.uint64)[0]
                              >> np.uint64(1)))

    def parameters(self) -> list[nn.Parameter]:
        """Return everything that is learned: of the model, and of the objective's own modules."""
        return list(trainable_parameters(self.model, self.study.objective.modules).values())

    def forget(self) -> None:
        """Drop the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def micro_batches(self, step: int) -> Iterator[tuple[int, Batch]]:
        """Give this process's rows in pieces: (number of the first row in the global batch, batch)."""
        rows = self.study.batches.rows(step, self.processes.rank, self.processes.world)
        size = self.micro_batch or max(1, len(rows))
        for start in range(0, len(rows), size):
            part = rows.select(slice(start, start + size))
            yield int(part.row[0]), self.study.corruption(part, seed=self.seed, step=step)

    def targets(self, objective: Objective, micro: list[Batch]) -> dict[str, float]:
        """Count the targets of each part over the whole global batch; every process knows the same parts."""
        counts = dict.fromkeys(objective.parts, 0.0)
        for batch in micro:
            for name, count in objective.count(batch).items():
                counts[name] += count
        return self.processes.sums(counts)

    def fail(self, step: int, loss: float, norm: float, micro: list[Batch]) -> None:
        """Save the batch and stop. The weights are still those before this step."""
        path = self.failures / f"step-{step + 1}-process-{self.processes.rank}.safetensors"
        tensors = {f"{number}.{name}": value.contiguous()
                   for number, batch in enumerate(micro) for name, value in batch.items()}
        write_atomically(path, lambda temporary: write_tensors(tensors, temporary))
        raise WorkError(f"step {step + 1}: the loss is {loss:g}, the gradient's norm {norm:g}; its batch is saved here",
                        where=str(path), remedy="lower the learning rate or the clip; earlier checkpoints are whole")


Evaluate = Callable[[nn.Module], dict[str, float]]
"""The model's scores on held-out data, `loss` among them; the lower the better."""


def held_out_loss(scores: Mapping[str, float]) -> float:
    """Return what checkpoints are chosen by where nothing else is said."""
    return scores["loss"]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How a model is measured, and what the best checkpoint has least of."""

    evaluate: Evaluate
    badness: Callable[[Mapping[str, float]], float] = held_out_loss
