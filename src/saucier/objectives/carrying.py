"""A memory that is carried from step to step: which rows go on, and what the model remembers of each.

Letters: B rows of a micro-batch, M memory, D dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from saucier.objectives.base import Batch, Corruption, Loss, Objective, tensor
from saucier.objectives.prediction import Prediction, inputs_of
from saucier.text.rows import Rows

ROWS, CONTINUES = "rows", "continues"
"""What a batch holds beside the model's inputs: each row's number in the global batch, and whether it goes on."""


@dataclass(frozen=True, slots=True)
class CarryingCorruption:
    """Rows that go on where those of the step before ended; a memory goes over the borders of documents."""

    inner: Corruption[Rows]
    """What is done to each row."""

    @property
    def overlap(self) -> int:
        """That of the inner one."""
        return self.inner.overlap

    def row_length(self, length: int) -> int:
        """Likewise."""
        return self.inner.row_length(length)

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Say of each row its number and whether it goes on. Shapes: adds rows, continues [B]."""
        batch = self.inner(rows, seed=seed, step=step)
        goes_on = np.zeros(len(rows)) if rows.continues is None else rows.continues
        plain = {name: value for name, value in batch.items() if name not in ("documents", "places")}
        return plain | {ROWS: tensor(rows.row), CONTINUES: tensor(goes_on)}


@dataclass(slots=True)
class Remembered:
    """What a model remembers of each row of the batch, by the row's number: [M, D] for each block."""

    of: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)

    def recall(self, rows: Sequence[int]) -> list[Tensor] | None:
        """Return the memory of some rows, [M, B, D] for each block; None where there is none yet."""
        if any(row not in self.of for row in rows):
            return None
        return [torch.stack(block, dim=1) for block in zip(*(self.of[row] for row in rows), strict=True)]

    def keep(self, rows: Sequence[int], mems: Sequence[Tensor]) -> None:
        """Put the memory of some rows in the place of what was remembered of them."""
        self.of.update(zip(rows, zip(*(block.unbind(1) for block in mems), strict=True), strict=True))


@dataclass(frozen=True, slots=True)
class Carrying(Objective):
    """A prediction that reads, at every step, what the model remembers of the row's text so far.

    The memory is what the weights of earlier steps made of the text, so it cannot be computed again: it is a part of
    the run's state, and saved with it. Source: Dai et al. 2019, §3.2, arXiv:1901.02860, and code release.
    """

    prediction: Prediction
    remembered: Remembered = field(default_factory=Remembered)

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the prediction."""
        return self.prediction.parts

    @property
    def figures(self) -> Mapping[str, str]:
        """Likewise."""
        return self.prediction.figures

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Likewise."""
        return self.prediction.modules

    def bind(self, model: nn.Module) -> None:
        """Bind the prediction."""
        self.prediction.bind(model)

    def at(self, step: int) -> Carrying:
        """Return what is learned at a step; the memory is the same one."""
        return replace(self, prediction=self.prediction.at(step))

    def held_out(self) -> Carrying:
        """Return what is measured, with a memory of its own."""
        return Carrying(self.prediction.held_out())

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets."""
        return self.prediction.count(batch)

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Read beside the memory, predict, and remember."""
        rows = batch[ROWS].tolist()
        known = self.remembered.recall(rows) if bool(batch[CONTINUES].all()) else None
        plain = {name: value for name, value in batch.items() if name not in (ROWS, CONTINUES)}
        output = model(**inputs_of(plain, self.prediction.beside), mems=known, use_mems=True, compute_logits=False)
        self.remembered.keep(rows, output.mems)
        return self.prediction.of(model, output, plain)

    def carried(self) -> dict[str, Tensor]:
        """Return the memory of all rows in their order, [B, M, D] for each block, by its number."""
        known = self.remembered.recall(sorted(self.remembered.of)) or []
        return {str(number): block.transpose(0, 1).contiguous() for number, block in enumerate(known)}

    def carry_on(self, carried: Mapping[str, Tensor], first: int) -> None:
        """Remember what `carried` gave, of rows that are numbered from `first`."""
        blocks = [carried[str(number)].transpose(0, 1) for number in range(len(carried))]
        rows = range(first, first + blocks[0].shape[1])
        self.remembered.keep(rows, blocks)
