"""What is inside a teacher as targets: vectors of layers, attentions, and relations of queries, keys and values.

Letters: B batch, L length, H heads, E head width, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as architecture
from saucier.config.questions import differs_by_head, draws_blocks
from saucier.errors import InputError
from saucier.objectives.base import MASK_OF_INPUT, Batch
from saucier.objectives.config import distillation as c
from saucier.objectives.observed_pass import ObservedAttention, ObservedPass
from saucier.objectives.teacher_losses import LOSSES, Bodies, Heads, TeacherLoss, compute_divergence, precise


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideLoss(TeacherLoss):
    """What is inside both models, token by token."""

    paired: bool = False
    """Whether the student has two stacks."""
    inside: ClassVar[bool] = True

    def mask(self, batch: Batch) -> Tensor:
        """Say which tokens of its stack's side are real, texts of a group as rows. Shapes: -> [B, L]."""
        name = "decoder_input_ids" if self.paired and self.student == "decoder" else "input_ids"
        found = batch.get(MASK_OF_INPUT[name])
        real: Tensor = torch.ones_like(batch[name], dtype=torch.bool) if found is None else found.bool()
        return real.flatten(0, -2)

    def count(self, batch: Batch) -> float:
        """Number of real tokens."""
        return float(self.mask(batch).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoss(InsideLoss):
    """The vectors that layers give, or that the first one reads (C eq 42, 43, 46)."""

    distance: c.MeanSquared | c.CosineDistance
    reads_states: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """The vectors of the teacher's layers."""
        return tuple(f"{self.teacher}.states.{other}" for _, other in self.pairs)

    def of_layer(self, layer: int, *, first: bool) -> TeacherLoss | None:
        """Return it with one layer alone; the embeddings, number 0, belong to the first one."""
        found = tuple(pair for pair in self.pairs if pair[0] == layer or (first and pair[0] == 0))
        return replace(self, pairs=found) if found else None

    def layers(self, whose: str) -> set[int]:
        """Return the layers that it compares, without the embeddings."""
        return {pair[whose == "teacher"] for pair in self.pairs} - {0}

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: states [B, L, D] of each layer; the sum over layers and real tokens."""
        real, total = self.mask(batch), torch.zeros((), device=batch["input_ids"].device)
        ours, theirs = student.states(self.student), teacher.states(self.teacher)
        for own, other in self.pairs:
            given = ours[own][real]
            made, wanted = precise(given if project is None else project(given)), precise(theirs[other][real])
            if isinstance(self.distance, c.CosineDistance):
                total = total + (1 - F.cosine_similarity(made, wanted, dim=-1)).sum()
            else:
                total = total + (made - wanted).square().mean(-1).sum()
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLoss(InsideLoss):
    """Scores or weights of attentions (C eq 41, 47)."""

    config: c.Attentions
    reads_attention: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """The scores of the teacher's layers."""
        return tuple(f"{self.teacher}.scores.{other}" for _, other in self.pairs)

    def count(self, batch: Batch) -> float:
        """Number of pairs of real tokens of a row; of a divergence that of real queries."""
        lengths = self.mask(batch).sum(-1)
        return float((lengths if isinstance(self.config.compare, c.MapsDivergence) else lengths**2).sum())

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: scores [B, H, L, L] of each layer; the sum over layers and pairs of a mean over heads."""
        total = torch.zeros((), device=batch["input_ids"].device)
        for own, other in self.pairs:
            ours, theirs = student.attentions[self.student, own], teacher.attentions[self.teacher, other]
            total = total + self.compare(ours, theirs)
        return total

    def compare(self, ours: ObservedAttention, theirs: ObservedAttention) -> Tensor:
        """Compare one layer."""
        assert ours.scores is not None and theirs.scores is not None, "an exact softmax shows its scores"
        seen = ours.visible
        first, second = precise(ours.scores), precise(theirs.scores)
        own = first.shape[1]
        if isinstance(self.config.compare, c.ScoresError):
            first, second = (self.join(one, own, Tensor.mean) for one in (first, second))
            return (first - second).masked_fill(~seen, 0.0).square().mean(1).sum()
        # a row that sees nothing is padding, and has no distribution
        logs = [one.masked_fill(~seen, torch.finfo(one.dtype).min / 2).log_softmax(-1) for one in (first, second)]
        first, second = (self.join(one, own, mean_of_logs) for one in logs)
        if isinstance(self.config.compare, c.MapsError):
            return (first.exp() - second.exp()).masked_fill(~seen, 0.0).square().mean(1).sum()
        never = torch.tensor(float("-inf"), dtype=first.dtype, device=first.device)
        first, second = (torch.where(seen, one, never) for one in (first, second))
        return compute_divergence(first, second, c.KullbackLeibler()) / first.shape[1]

    def join(self, x: Tensor, own: int, mean: Callable[[Tensor, int], Tensor]) -> Tensor:
        """Put heads together as the rule says, so that both have as many. Shapes: [B, H, L, L] -> the same."""
        match self.config.heads:
            case c.EqualHeads():
                return x
            case c.GroupedHeads():
                return mean(x.unflatten(1, (own, -1)), 2)
            case c.MeanHeads():
                return mean(x[:, None], 2)


def mean_of_logs(logs: Tensor, dim: int) -> Tensor:
    """Return the logarithm of the mean of what has these logarithms."""
    return logs.logsumexp(dim) - torch.tensor(logs.shape[dim], dtype=logs.dtype).log()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationLoss(InsideLoss):
    """Relations of queries, keys or values among tokens: softmax of scaled products (MiniLM, MiniLMv2)."""

    vectors: tuple[c.Vectors, ...]
    heads: int
    """Pieces that each of them is cut into, on both sides."""
    reads_attention: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[str, ...]:
        """What relations are made of, in the teacher's layers."""
        return tuple(f"{self.teacher}.{kind}.{other}" for _, other in self.pairs for kind in self.vectors)

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """The sum over layers, kinds of vectors and real queries of a mean over relation heads."""
        total = torch.zeros((), device=batch["input_ids"].device)
        for own, other in self.pairs:
            ours, theirs = student.attentions[self.student, own], teacher.attentions[self.teacher, other]
            for kind in self.vectors:
                first, second = (relate(precise(one.vectors[kind]), self.heads, ours.visible)
                                 for one in (ours, theirs))
                total = total + compute_divergence(first, second, c.KullbackLeibler()) / self.heads
        return total


def relate(x: Tensor, heads: int, seen: Tensor) -> Tensor:
    """Return log softmax(x xᵀ / √E) of each piece, -inf where nothing is seen. Shapes: [B, L, H·E] -> [B, H, L, L]."""
    pieces = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    scores = pieces @ pieces.transpose(-1, -2) * pieces.shape[-1] ** -0.5
    logs = scores.masked_fill(~seen, torch.finfo(x.dtype).min / 2).log_softmax(-1)
    return torch.where(seen, logs, torch.tensor(float("-inf"), dtype=x.dtype, device=x.device))


def width_of(body: architecture.Transformer, side: str) -> int:
    """Return the width of the vectors inside a stack."""
    return body.reader_dim if side == "encoder" else body.dim


@dataclass(frozen=True, slots=True)
class ComparedAttentions:
    """What a loss of attentions compares in one stack."""

    student: str
    teacher: str
    pairs: c.Pairs
    layers: tuple[tuple[LayerAttention, LayerAttention], ...]
    """The attentions of each pair."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """The attention of a layer, and the width of what it reads."""

    config: architecture.SelfAttention
    dim: int

    def width(self, kind: c.Vectors) -> int:
        """Return the width of all queries, keys or values of a token."""
        query, key, _ = self.config.projection.widths(self.dim)
        return query if kind == "queries" else key

    @property
    def value_heads(self) -> int:
        """Heads of the values."""
        return self.config.projection.kv_heads or self.config.projection.heads


def get_attention(body: architecture.Transformer, side: str, layer: int, kind: str) -> LayerAttention:
    """Return the attention of a layer. Raises `InputError` where it has not one exact attention."""
    block = getattr(body, side).blocks()[layer - 1]
    inside = [one.inner for one in block.sublayers if isinstance(one.inner, architecture.SelfAttention)]
    exact = len(inside) == 1 and isinstance(inside[0].kernel, architecture.Softmax) and not inside[0].global_maps
    if not exact or draws_blocks(inside[0].visibility) or differs_by_head(inside[0].visibility):
        raise InputError(f"{kind} needs one attention with an exact softmax in each layer, and layer {layer} of the "
                         f"{side} has none such", where=LOSSES,
                         remedy="compare hidden_states, or learn soft targets alone")
    return LayerAttention(inside[0], block.width(width_of(body, side)))


def compare_attentions(config: c.Attentions | c.ValueRelations | c.AttentionRelations, bodies: Bodies,
                       whole: c.Distillation) -> Iterator[ComparedAttentions]:
    """Yield what is compared in each stack. Raises `InputError` for layers that see differently."""
    bodies.refuse_other_tokens(config.kind)
    for own, other in bodies.stacks(config.kind):
        pairs = choose_layers(config, whole, bodies, (own, other))
        layers = tuple((get_attention(bodies.student, own, first, config.kind),
                        get_attention(bodies.teacher, other, second, config.kind)) for first, second in pairs)
        for pair, (first, second) in zip(pairs, layers, strict=True):
            if first.config.visibility != second.config.visibility:
                raise InputError(f"{config.kind}: layers {pair[0]} and {pair[1]} of student and teacher see different "
                                 f"tokens ({first.config.visibility.kind}, {second.config.visibility.kind})",
                                 where=LOSSES, remedy="compare hidden_states, or learn soft targets alone")
        yield ComparedAttentions(own, other, pairs, layers)


def make_states(config: c.HiddenStates | c.Embeddings, name: str, bodies: Bodies,
                whole: c.Distillation) -> Iterator[TeacherLoss]:
    """Yield a loss of vectors for each stack."""
    bodies.refuse_other_tokens(config.kind)
    found = bodies.stacks(config.kind)
    for own, other in found:
        ours, theirs = width_of(bodies.student, own), width_of(bodies.teacher, other)
        narrow = [side for body, side in ((bodies.student, own), (bodies.teacher, other)) if getattr(body, side).narrow]
        if narrow:
            raise InputError(f"{config.kind} cannot look into a stack that gives narrower vectors than it has inside",
                             where=LOSSES, remedy="learn soft and hard targets alone")
        states = isinstance(config, c.HiddenStates)
        yield StateLoss(
            name=name_stack(name, own, len(found)), weight=config.weight, student=own, teacher=other,
            words="distance of the layers' vectors" if states else "distance of the embeddings",
            pairs=choose_layers(config, whole, bodies, (own, other)) if states else ((0, 0),),
            paired=len(found) > 1, widths=None if ours == theirs else (ours, theirs),
            distance=config.distance if isinstance(config, c.HiddenStates) else c.MeanSquared())


def name_stack(name: str, stack: str, stacks: int) -> str:
    """Return the name of a loss with its stack, where there are two."""
    return name if stacks == 1 else f"{name}_{stack}"


def choose_layers(config: c.Loss, whole: c.Distillation, bodies: Bodies, sides: tuple[str, str]) -> c.Pairs:
    """Return the layers that a loss compares. Raises `InputError` for a map that does not fit."""
    depths = [len(getattr(body, side).blocks())
              for body, side in zip((bodies.student, bodies.teacher), sides, strict=True)]
    return whole.map_of(config).choose(*depths)


def make_attentions(config: c.Attentions, name: str, bodies: Bodies, whole: c.Distillation) -> Iterator[TeacherLoss]:
    """Yield a loss of attentions for each stack. Raises `InputError` for heads that the rule cannot put together."""
    found = list(compare_attentions(config, bodies, whole))
    for one in found:
        for first, second in one.layers:
            ours, theirs = first.config.projection.heads, second.config.projection.heads
            if (isinstance(config.heads, c.EqualHeads) and ours != theirs) or (
                    isinstance(config.heads, c.GroupedHeads) and theirs % ours):
                raise InputError(f"{config.kind}: the student has {ours} heads, the teacher {theirs}",
                                 where=f"{LOSSES}.heads", remedy="use heads: {kind: mean}, or attention_relations")
        yield AttentionLoss(name=name_stack(name, one.student, len(found)), weight=config.weight,
                            words="distance of the attentions", student=one.student, teacher=one.teacher,
                            pairs=one.pairs, paired=len(found) > 1, config=config)


def make_relations(config: c.ValueRelations | c.AttentionRelations, name: str, bodies: Bodies,
                   whole: c.Distillation) -> Iterator[TeacherLoss]:
    """Yield a loss of relations for each stack. Raises `InputError` for widths that the heads do not divide."""
    found = list(compare_attentions(config, bodies, whole))
    for one in found:
        heads = {config.heads or layer.value_heads for pair in one.layers for layer in pair}
        if len(heads) > 1:
            raise InputError(f"{config.kind}: student and teacher have {' and '.join(map(str, sorted(heads)))} heads "
                             "of values", where=f"{LOSSES}.heads", remedy="give a number of relation heads")
        count = heads.pop()
        widths = {layer.width(kind) for kind in config.vectors for pair in one.layers for layer in pair}
        if wrong := [width for width in sorted(widths) if width % count]:
            raise InputError(f"{config.kind}: vectors of width {wrong[0]} cannot be cut into {count} relation heads",
                             where=f"{LOSSES}.heads",
                             remedy=f"give a divisor of {' and '.join(map(str, sorted(widths)))}")
        yield RelationLoss(name=name_stack(name, one.student, len(found)), weight=config.weight,
                           words="distance of the relations", student=one.student, teacher=one.teacher,
                           pairs=one.pairs, paired=len(found) > 1, vectors=config.vectors, heads=count)
