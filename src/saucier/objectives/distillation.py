"""Distillation: an objective around another one, which holds a teacher and adds what the student learns from it.

The teacher is in evaluation mode, learns nothing and is no module of the objective: no checkpoint holds it. It reads
what the student read, or rows of its own, which the batch holds under `teacher.NAME`. Every loss is a sum over targets
that are known before the pass, so micro-batches and processes add up to the whole batch.
Letters: B batch, L length, N targets, D width, M layers of the student.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn

from saucier import config as architecture
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.objectives.answer_losses import make_soft, make_vectors
from saucier.objectives.base import Batch, Loss, LossPart, Objective, WrappedObjective, frozen
from saucier.objectives.config import distillation as c
from saucier.objectives.labels import run_model
from saucier.objectives.layer_losses import make_attentions, make_relations, make_states
from saucier.objectives.observed_pass import (
    SIDES,
    InputReader,
    InputsKnown,
    ObservedModel,
    ObservedPass,
    Wanted,
    find_only_pass,
)
from saucier.objectives.prediction import Prediction
from saucier.objectives.stored_outputs import OutputStore
from saucier.objectives.teacher_losses import Bodies, TeacherLoss, unwrap_objective

TEACHER = "teacher."
"""What comes before the names of the teacher's own rows in a batch."""
PROJECTIONS = "distillation"
"""What the learned maps from the student's widths to the teacher's are called among the modules."""


@dataclass(frozen=True, slots=True)
class Distilled(WrappedObjective):
    """The losses of a teacher beside those of an objective."""

    config: c.Distillation
    teacher: Transformer
    losses: tuple[TeacherLoss, ...]
    """What is learned from the teacher now."""
    hard: c.HardTargets | None
    """How much the inner objective counts now; None: nothing."""
    steps: int = 1
    """Steps of the training, for schedules."""
    seed: int = 0
    """Feeds the starting weights of the maps."""
    frozen_below: int = 0
    """The layer of the student below which nothing learns now; 0: everything learns."""
    stored: OutputStore | None = field(default=None, compare=False)
    """What the teacher gave for each row; None: it is asked."""
    own: dict[str, nn.Module] = field(default_factory=dict, compare=False)
    """The maps, from `bind` on."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the inner one, then the losses by name."""
        return (*self.inner.parts, *(one.name for one in self.losses))

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the inner one, and the maps where widths differ; not the teacher."""
        return {**self.inner.modules, **self.own}

    @property
    def loss_factor(self) -> float:
        """That of the inner one, as often as it counts."""
        return self.inner.loss_factor * (0.0 if self.hard is None else self.hard.weight)

    @property
    def has_moving_targets(self) -> bool:
        """As of the inner one: what is measured is its loss."""
        return self.inner.has_moving_targets

    def bind(self, model: nn.Module) -> None:
        """Bind the inner one, put the teacher where the model is, and make the maps.

        Raises `InputError` where vectors in front of the text would be compared with tokens.
        """
        assert isinstance(model, Transformer), "build_distilled is given its config"
        if model.front is not None and any(one.inside for one in self.losses):
            raise InputError("the student has trained vectors in front of its text, so its layers cannot be compared",
                             where="distillation.losses", remedy="learn soft and hard targets alone")
        self.inner.bind(model)
        self.teacher.to(model.device)
        random, maps = torch.Generator().manual_seed(self.seed), nn.ModuleDict()
        for one in self.losses:
            if one.widths is not None:
                found = nn.Linear(*one.widths, bias=False)
                nn.init.normal_(found.weight, std=one.widths[0] ** -0.5, generator=random)
                maps[one.name] = found
        if maps:
            self.own[PROJECTIONS] = maps.to(model.device, next(model.parameters()).dtype)

    def at(self, step: int) -> Distilled:
        """Return what is learned at a step, as the schedule says."""
        inner = self.inner.at(step)
        match self.config.schedule:
            case c.Joint(transfer=share) if step < count_transfer_steps(share, self.steps):
                return replace(self, inner=inner, hard=None, losses=tuple(one for one in self.losses if one.inside))
            case c.Progressive(transfer=share) if step < (first := count_transfer_steps(share, self.steps)):
                stages = list_stages(self.losses)
                number = step * len(stages) // first
                found = (one.of_layer(stages[number], first=number == 0) for one in self.losses if one.inside)
                return replace(self, inner=inner, hard=None, losses=tuple(one for one in found if one is not None),
                               frozen_below=stages[number] if number else 0)
            case c.Joint() | c.Progressive():
                return replace(self, inner=inner, losses=tuple(one for one in self.losses if not one.inside))
        return replace(self, inner=inner)

    def held_out(self) -> Objective:
        """Return what is measured: the loss of the inner objective alone, and each distance as a figure."""
        return MeasuredDistillation(self.inner.held_out(), self)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of the inner one, and of each loss."""
        own = take_own_rows(batch)
        return self.inner.count(own) | {one.name: one.count(own) for one in self.losses}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return what the inner objective learns, weighted, and what is learned from the teacher."""
        given, distances = self.compare(model, batch)
        others = None if self.hard is None else self.hard.others or self.hard.weight
        parts = {} if self.hard is None or others is None else {
            name: LossPart(part.total * (others if number else self.hard.weight), part.weight)
            for number, (name, part) in enumerate(given.parts.items())}
        learned = {one.name: LossPart(distances[one.name].total * one.weight, distances[one.name].weight)
                   for one in self.losses}
        return Loss(parts | learned, given.figures)

    def compare(self, model: nn.Module, batch: Batch) -> tuple[Loss, dict[str, LossPart]]:
        """Let both read; return the inner objective's loss, and each distance without its weight."""
        own, wanted = take_own_rows(batch), (self.want("student"), self.want("teacher"))
        observed = ObservedModel(model, wanted[0])
        with frozen(list_below(model, self.frozen_below)):
            given = self.inner(cast(nn.Module, observed), own)
        student = find_only_pass(observed.passes, type(self.inner).__name__)
        with torch.no_grad():
            teacher = self.ask(choose_teacher_inputs(self.teacher.config, student.inputs, batch), wanted[1])
        maps = cast(Mapping[str, nn.Module], self.own.get(PROJECTIONS, {}))
        heads = (model, self.teacher)
        return given, {one.name: LossPart(one(student, teacher, own, heads=heads, project=maps[one.name]
                                              if one.widths is not None else None), one.count(own))
                       for one in self.losses}

    def want(self, whose: str) -> Wanted:
        """Return what must be recorded of a pass of the student or of the teacher."""
        return Wanted(any(one.reads_states for one in self.losses), {
            side: frozenset(chain.from_iterable(one.layers(whose) for one in self.losses
                                                if one.reads_attention and getattr(one, whose) == side))
            for side in SIDES})

    @property
    def reads(self) -> tuple[str, ...]:
        """What all losses read of the teacher's pass, each once."""
        return tuple(dict.fromkeys(name for one in self.losses for name in one.reads))

    def read_inputs(self, model: nn.Module, batch: Batch) -> dict[str, Any]:
        """Return what the teacher reads of a batch; the student is not run."""
        try:
            self.inner(cast(nn.Module, InputReader(model)), take_own_rows(batch))
        except InputsKnown as known:
            return choose_teacher_inputs(self.teacher.config, known.inputs, batch)
        raise AssertionError("an objective runs its model")

    def ask(self, inputs: dict[str, Any], wanted: Wanted) -> ObservedPass:
        """Return what the teacher gives for inputs: as it is stored, or by a pass."""
        return self.run_teacher(inputs, wanted) if self.stored is None else self.stored.read(self.reads, inputs)

    def run_teacher(self, inputs: dict[str, Any], wanted: Wanted) -> ObservedPass:
        """Let the teacher read what the student read, or its own rows."""
        self.teacher.eval()
        observed = ObservedModel(self.teacher, wanted)
        if isinstance(unwrap_objective(self.inner), Prediction):
            observed(**inputs)
        else:  # what a task reads is a whole text, by whatever head and prefix the teacher has
            run_model(cast(nn.Module, observed), {name: value for name, value in inputs.items()
                                                  if name not in ("prefix_length", "compute_logits")})
        return replace(find_only_pass(observed.passes, "a teacher"), inputs=inputs)

    def passes_to_store(self, batches: Iterable[dict[str, Any]]) -> Iterator[ObservedPass]:
        """Yield the teacher's pass over each of some inputs, with all that the losses read of it."""
        wanted = self.want("teacher")
        for inputs in batches:
            with torch.no_grad():
                found = self.run_teacher(inputs, wanted)
                for one in self.losses:
                    one.summarize(found, self.teacher)
            yield found


@dataclass(frozen=True, slots=True)
class MeasuredDistillation(WrappedObjective):
    """The inner objective on held-out rows, and how far the student is from its teacher there."""

    whole: Distilled
    """With all that is learned at any step."""

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of the inner one, and the distances."""
        return {**self.inner.figures, **{one.name: one.words for one in self.whole.losses}}

    @property
    def loss_factor(self) -> float:
        """That of the inner one."""
        return self.inner.loss_factor

    @property
    def has_moving_targets(self) -> bool:
        """As of the inner one."""
        return self.inner.has_moving_targets

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of the inner one."""
        return self.inner.count(take_own_rows(batch))

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the inner objective's loss, and the distances as figures."""
        found, distances = replace(self.whole, inner=self.inner).compare(model, batch)
        return Loss(found.parts, found.figures | distances)


def take_own_rows(batch: Batch) -> Batch:
    """Return a batch without the teacher's rows."""
    return {name: value for name, value in batch.items() if not name.startswith(TEACHER)}


def choose_teacher_inputs(config: architecture.Transformer, read: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    """Return what a teacher reads: its own rows where the batch has some, else the student's.

    Segments that it has no table for are left out. The texts of a group are rows of one text each, as the student read
    them. Shapes: rows [B, L] or [B, G, L] -> as the student's.
    """
    rows = {name.removeprefix(TEACHER): value for name, value in batch.items() if name.startswith(TEACHER)}
    if rows:
        flat = read["input_ids"].dim() < rows["input_ids"].dim()
        plain = {name: value for name, value in read.items() if not isinstance(value, Tensor)}
        return plain | {name: value.flatten(0, 1) if flat else value for name, value in rows.items()}
    return {name: value for name, value in read.items()
            if name != "token_type_ids" or config.embed.segments is not None}


def list_below(model: nn.Module, layer: int) -> Iterator[nn.Parameter]:
    """Yield the parameters below a layer of a model of one stack, the embedding's among them; 0: none."""
    assert isinstance(model, Transformer), "build_distilled is given its config"
    stack = model.encoder or model.decoder
    assert stack is not None, "check_schedule wants one stack"
    return chain.from_iterable(part.parameters() for part in (model.embed, *list(stack.blocks)[:layer - 1])
                               if layer)


def count_transfer_steps(share: float, steps: int) -> int:
    """Return how many steps the stages before the targets have."""
    return max(1, round(share * steps))


def list_stages(losses: tuple[TeacherLoss, ...]) -> list[int]:
    """Return the layers of the student that learn one after the other."""
    return sorted({layer for one in losses for layer in one.layers("student")})


MAKERS: Mapping[type[c.DistillationLoss], Callable[[Any, str, Bodies, c.Distillation], Iterator[TeacherLoss]]] = {
    c.SoftTargets: make_soft, c.HiddenStates: make_states, c.Embeddings: make_states, c.Attentions: make_attentions,
    c.ValueRelations: make_relations, c.AttentionRelations: make_relations, c.TextVectors: make_vectors}
"""Loss -> what makes it for two bodies; the hard targets are the inner objective's own loss."""


def build_distilled(inner: Objective, config: c.Distillation, teacher: Transformer, *,
                    body: architecture.Transformer, aligned: bool = True, steps: int = 1, seed: int = 0,
                    stored: OutputStore | None = None) -> Distilled:
    """Put a distillation around an objective, for a student of this body.

    `aligned`: whether both read the same tokens; `stored`: what the teacher gives for rows. Raises `InputError` for a
    loss that one of both cannot have, for a layer map that does not fit, and for a schedule that has no stages.
    """
    bodies = Bodies(inner, body, teacher.config, aligned)
    losses = tuple(found for name, one in config.named() if not isinstance(one, c.HardTargets)
                   for found in MAKERS[type(one)](one, name, bodies, config))
    hard = [one for one in config.losses if isinstance(one, c.HardTargets)]
    if len(hard) > 1:
        raise InputError("hard_targets stands twice", where="distillation.losses", remedy="give it once, with a weight")
    check_schedule(config, losses, hard, body, steps)
    teacher.requires_grad_(False).eval()
    return Distilled(inner, config, teacher, losses, hard[0] if hard else None, steps, seed, stored=stored)


def check_schedule(config: c.Distillation, losses: tuple[TeacherLoss, ...], hard: list[c.HardTargets],
                   body: architecture.Transformer, steps: int) -> None:
    """Raise `InputError` for stages that would have nothing to learn."""
    schedule, where = config.schedule, "distillation.schedule"
    if isinstance(schedule, c.Auxiliary):
        return
    if not any(one.inside for one in losses) or not (hard or any(not one.inside for one in losses)):
        raise InputError(f"{schedule.kind} first learns what is inside, then the targets, and the losses are of one "
                         "kind", where=where, remedy="add such a loss, or use kind: auxiliary")
    if isinstance(schedule, c.Joint):
        return
    stages, stacks = list_stages(losses), body.stacks
    first = count_transfer_steps(schedule.transfer, steps)
    if len(stacks) != 1 or len(stacks[0].layers.stored()) != len(stacks[0].blocks()):
        raise InputError("progressive freezes what is below a layer, and the student's layers share weights or stand "
                         "in two stacks", where=where, remedy="use kind: joint or auxiliary")
    if not stages or first < len(stages):
        raise InputError(f"{len(stages)} layers learn one after the other, in {first} steps", where=where,
                         remedy="use kind: joint, or more steps")
