"""What corruptions and objectives agree on: `Batch`, `TokenIds`, `LossPart`, `Loss`, `Corruption`, `Objective`.

A corruption turns rows of ids into a batch and knows no model; an objective turns (model, batch) into a loss and
knows no optimizer and no device. Letters: B batch, L length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saucier import config as architecture
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives.token_ids import IGNORED as IGNORED
from saucier.objectives.token_ids import MASK_OF_INPUT as MASK_OF_INPUT
from saucier.objectives.token_ids import TokenIds as TokenIds
from saucier.text.collocations import Collocations

Batch = dict[str, Tensor]
"""The model's arguments by name, and what is to be predicted: `labels` [B, L], `next_sentence` [B]."""

R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class ObjectiveInputs:
    """All that an objective is built from, in addition to its own config."""

    ids: TokenIds
    body: architecture.Transformer | None = None
    """The model that will learn; None: one of the kind that the objective was published with."""
    steps: int = 1
    """Steps of the training, for schedules."""
    length: int = 512
    """Tokens of a row, as the model sees them."""
    seed: int = 0
    """Feeds the starting weights of the objective's own modules."""
    collocations: Collocations | None = None
    """The n-grams of the training text that PMI masking hides whole; None where none were counted."""


@dataclass(slots=True)
class LossPart:
    """A sum over targets and the number of targets."""

    total: Tensor
    weight: float


@dataclass(slots=True)
class Loss:
    """The loss of one micro-batch, as sums, so that the loop can divide by the targets of the whole batch.

    The learned loss is the sum over `parts` of total / weight. `figures` (`nll`, `correct`) are detached, for reports.
    """

    parts: dict[str, LossPart]
    figures: dict[str, LossPart] = field(default_factory=dict)

    @property
    def total(self) -> Tensor:
        """The sum of all parts, for objectives of one part."""
        return torch.stack([part.total for part in self.parts.values()]).sum()

    @property
    def weight(self) -> float:
        """Number of targets of the first part."""
        return next(iter(self.parts.values())).weight

    def over(self, weights: Mapping[str, float]) -> Tensor:
        """Return this micro-batch's share of the mean, given each part's targets in the global batch."""
        shares = [part.total / weights[name] for name, part in self.parts.items() if weights[name]]
        return torch.stack(shares).sum() if shares else self.total * 0.0


class Corruption(Protocol[R_contra]):
    """Rows of ids to a batch: a pure function of (rows, seed, step) through each row's number in the global batch."""

    def __call__(self, rows: R_contra, *, seed: int, step: int) -> Batch:
        """Make the batch."""

    @property
    def overlap(self) -> int:
        """Tokens that a row must share with the next one, beyond `row_length`, so that every token is a target once."""

    def row_length(self, length: int) -> int:
        """How many tokens of its own a row must have so that the model sees `length`."""


class RowCorruption:
    """What most corruptions have in common: rows are cut as the model sees them, and none needs its neighbour."""

    __slots__ = ()

    @property
    def overlap(self) -> int:
        """Tokens that a row must share with the next one."""
        return 0

    def row_length(self, length: int) -> int:
        """As many as the model sees."""
        return length


@dataclass(slots=True)
class CarriedBuffer:
    """What the weights of earlier updates made of each row: a memory of its text, or what a model wrote to learn from.

    It is no function of (seed, step), so it cannot be computed again: it is saved with every checkpoint, the rows of
    all processes together, and put back when the run goes on. A row has its number in the global batch. Each value
    keeps its name, shape and dtype (of numbers) from update to update, and carries no gradient.
    """

    rows: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def get(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the values of some rows by name; none where a row has none yet. Shapes: [len(numbers), ...] each."""
        if not numbers or any(number not in self.rows for number in numbers):
            return {}
        return {name: torch.stack([self.rows[number][name] for number in numbers]) for name in self.rows[numbers[0]]}

    def put(self, numbers: Sequence[int], values: Mapping[str, Tensor]) -> None:
        """Keep values of some rows in the place of earlier ones. Shapes: [len(numbers), ...] each."""
        for place, number in enumerate(numbers):
            self.rows[number] = {name: value[place].detach() for name, value in values.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the values of all rows in the order of their numbers, by name. Shapes: [rows, ...] each."""
        return self.get(sorted(self.rows))


class Objective(ABC):
    """(model, batch) to a loss."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts that its losses may have, the main one first."""
        return ("tokens",)

    @property
    def figures(self) -> Mapping[str, str]:
        """Figures in addition to `nll` and `correct` that its losses may have, and what a report calls each."""
        return {}

    @abstractmethod
    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Compute the loss; with gradients where they are on."""

    @abstractmethod
    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of each part, known before the forward pass."""

    def at(self, step: int) -> Objective:
        """Return what is learned at a step (from 0); the same at every step, unless a schedule says otherwise."""
        return self

    def held_out(self) -> Objective:
        """Return what is measured on held-out text; the same, unless some of it is there for training alone."""
        return self

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules of its own that are trained and saved with the model (a generator, a second head), by name.

        There are none before `bind`: an objective alone is cheap to make.
        """
        return {}

    @property
    def loss_factor(self) -> float:
        """Factor on the mean of the main part in what is learned; `nll` is reported without it."""
        return 1.0

    @property
    def has_moving_targets(self) -> bool:
        """Whether the task gets harder while it is learned, so that the last weights count as the best ones."""
        return False

    def bind(self, model: nn.Module) -> None:  # noqa: B027 - most objectives have no modules
        """Make its modules, on the model's device, before anything is learned; they may share tables with it."""

    @property
    def carried(self) -> CarriedBuffer:
        """What it carries from update to update, of this process's rows; empty where that is nothing."""
        return CarriedBuffer()

    def finish_update(self, model: nn.Module, step: int) -> None:  # noqa: B027 - most objectives have nothing to do
        """Put right what hangs together, after the update of a step (from 0) and before anything is saved."""

    def finished(self, model: Transformer) -> Transformer:
        """Return what was learned, when all updates are done: the model, or a smaller one that it has become."""
        return model


class WholeBatchObjective(Objective):
    """An objective that compares the vectors of all texts of a global batch, however many passes made them."""

    __slots__ = ()

    @abstractmethod
    def split(self, micro: Sequence[Batch], size: int) -> list[Batch]:
        """Return the texts of micro-batches as passes of at most `size` texts."""

    @abstractmethod
    def represent(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return a vector for each text of a pass. Shapes: -> [U, E]."""

    @abstractmethod
    def assemble(self, vectors: Tensor, passes: Sequence[Batch], keys: Batch) -> Tensor:
        """Return the vectors of each row's texts from those of all passes. Shapes: [U, E] -> [B, G, E]."""

    @abstractmethod
    def keys(self, batch: Batch) -> Batch:
        """Return what the loss reads next to the vectors, as wide in every batch. Shapes: [B, ...] each."""

    @abstractmethod
    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each row among all of them. Shapes: [B, G, E] -> [B]."""


@dataclass(frozen=True, slots=True)
class WrappedObjective(Objective):
    """An objective that puts something around another one, and is like it in all else."""

    inner: Objective

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the inner one."""
        return self.inner.parts

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of the inner one."""
        return self.inner.figures

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the inner one."""
        return self.inner.modules

    def bind(self, model: nn.Module) -> None:
        """Bind the inner one."""
        self.inner.bind(model)

    @property
    def carried(self) -> CarriedBuffer:
        """That of the inner one."""
        return self.inner.carried

    def finish_update(self, model: nn.Module, step: int) -> None:
        """As the inner one."""
        self.inner.finish_update(model, step)

    def finished(self, model: Transformer) -> Transformer:
        """As the inner one."""
        return self.inner.finished(model)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of the inner one."""
        return self.inner.count(batch)


@contextmanager
def frozen(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Keep gradients from parameters for the passes inside; those that learned go on to learn afterwards."""
    still = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in still:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in still:
            parameter.requires_grad_(True)


def to_int_tensor(values: NDArray[np.generic]) -> Tensor:
    """Make an int64 tensor that owns its memory."""
    return torch.from_numpy(np.array(values, dtype=np.int64))


def require_token(value: int | None, name: str, objective: str) -> int:
    """Return a special id that an objective cannot do without. Raises `InputError` when the tokenizer lacks it."""
    if value is None:
        raise InputError(f"the tokenizer has no {name} token, which {objective} needs",
                         where=f"tokenizer.special.{name}",
                         remedy=f"name one in the recipe, such as {name}: '[{name.upper()}]'")
    return value


def count_tokens_read(batch: Mapping[str, Any]) -> tuple[int, int]:
    """Count the tokens of a batch that each side of a model reads (0 where there is none); padding is none."""
    first, second = (int(batch[mask].sum()) if mask in batch else batch[name].numel() if name in batch else 0
                     for name, mask in MASK_OF_INPUT.items())
    return first, second
