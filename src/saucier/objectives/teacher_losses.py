"""What all losses of a teacher have in common, and what two bodies must have for them.

Letters: B batch, C classes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from saucier import config as architecture
from saucier.errors import InputError
from saucier.objectives.base import Batch, Objective, WrappedObjective
from saucier.objectives.config import distillation as c
from saucier.objectives.observed_pass import SIDES, ObservedPass
from saucier.objectives.prediction import AuxiliaryLanguageModelling

LOSSES = "distillation.losses"
Heads = tuple[nn.Module, nn.Module]
"""The student and the teacher, whose heads turn vectors into tokens."""


def precise(x: Tensor) -> Tensor:
    """Return numbers in float32 at least, as losses are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def inner_products(first: Tensor, second: Tensor) -> Tensor:
    """Return all inner products of two sets of vectors in float32 at least, under autocast too.

    As scores before a softmax they would be too coarse in bfloat16: there, numbers of 20 lie an eighth apart.
    Shapes: [..., N, E], [..., M, E] -> [..., N, M].
    """
    with torch.autocast(first.device.type, enabled=False):
        return precise(first) @ precise(second).transpose(-1, -2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherLoss:
    """A loss between what a student and what a teacher gives."""

    name: str
    weight: float
    words: str
    """What a report calls it."""
    widths: tuple[int, int] | None = None
    """Width of the student's and of the teacher's vectors where a map between them is learned."""
    student: str = ""
    """The student's stack that it looks into; empty: none."""
    teacher: str = ""
    """The teacher's."""
    pairs: c.Pairs = ()
    """The layers that are compared, (student's, teacher's), from 1."""

    inside: ClassVar[bool] = False
    """Whether it compares what is inside, and no answers."""
    reads_states: ClassVar[bool] = False
    """Whether it compares the vectors that layers give."""
    reads_attention: ClassVar[bool] = False
    """Whether it compares what attentions do."""

    def layers(self, whose: str) -> set[int]:
        """Return the layers of the student or of the teacher that it compares."""
        return {pair[whose == "teacher"] for pair in self.pairs}

    @property
    @abstractmethod
    def reads(self) -> tuple[str, ...]:
        """What it reads of a teacher's pass, by the names of `observed_pass.read_pass`."""

    def summarize(self, teacher: ObservedPass, head: nn.Module) -> None:
        """Put into a teacher's pass what the loss reads of it and the pass alone has not."""

    def of_layer(self, layer: int, *, first: bool) -> TeacherLoss | None:
        """Return it with one layer of the student alone; None where it has no such. `first`: it is the lowest."""
        found = tuple(pair for pair in self.pairs if pair[0] == layer)
        return replace(self, pairs=found) if found else None

    @abstractmethod
    def count(self, batch: Batch) -> float:
        """Number of its targets, known before the pass."""

    @abstractmethod
    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Return the sum over its targets, without its weight. `project`: the learned map, where there is one."""


def compute_divergence(student: Tensor, teacher: Tensor, divergence: c.KullbackLeibler | c.CrossEntropy) -> Tensor:
    """Sum the distance of distributions. Shapes: log probabilities [..., C] both, -inf where both are 0 -> scalar."""
    chance = teacher.exp()
    own, wanted = (one.masked_fill(chance == 0, 0.0) for one in (student, teacher))
    # subtracted one by one: the difference of two large sums would be lost in rounding
    return (chance * (wanted - own if isinstance(divergence, c.KullbackLeibler) else -own)).sum()


def unwrap_objective(objective: Objective) -> Objective:
    """Return what is inside all that stands around an objective."""
    while isinstance(objective, WrappedObjective | AuxiliaryLanguageModelling):
        objective = objective.inner if isinstance(objective, WrappedObjective) else objective.task
    return objective


@dataclass(frozen=True, slots=True)
class Bodies:
    """A student and its teacher, as losses are made for them."""

    inner: Objective
    student: architecture.Transformer
    teacher: architecture.Transformer
    aligned: bool
    """Whether both read the same tokens."""

    def refuse_other_tokens(self, kind: str) -> None:
        """Raise `InputError` for a loss token by token where both read other tokens."""
        if not self.aligned:
            raise InputError(f"{kind} compares token by token, and the teacher's tokenizer makes other tokens",
                             where=LOSSES,
                             remedy="use a student with the teacher's tokenizer, or soft_targets of whole texts")

    def stacks(self, kind: str) -> list[tuple[str, str]]:
        """Return which stack of the student is compared with which of the teacher. Raises `InputError` for none."""
        ours, theirs = ([side for side in SIDES if getattr(one, side)] for one in (self.student, self.teacher))
        if len(ours) != len(theirs):
            raise InputError(f"{kind} compares stacks, and the student has {' and '.join(ours)}, the teacher "
                             f"{' and '.join(theirs)}", where=LOSSES, remedy="learn soft and hard targets alone")
        for body, sides in ((self.student, ours), (self.teacher, theirs)):
            for side in sides:
                refuse_unusual_stack(getattr(body, side), kind)
        return list(zip(ours, theirs, strict=True))


def refuse_unusual_stack(stack: architecture.Stack, kind: str) -> None:
    """Raise `InputError` for a stack whose layers do not give one vector for each token."""
    reasons = {"its layers pool neighbours": isinstance(stack.layers, architecture.Funnel),
               "it has two residual streams": stack.residual.kind == "reversible",
               "it remembers earlier segments or has a second stream": bool(stack.memory or stack.queries)}
    for words, found in reasons.items():
        if found:
            raise InputError(f"{kind} cannot look into a stack: {words}", where=LOSSES,
                             remedy="learn soft and hard targets alone")
