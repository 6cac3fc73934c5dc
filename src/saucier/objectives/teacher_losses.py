"""What a student may learn from a teacher: each loss as a sum over targets, and the checks that both can have it.

Letters: B batch, L length, N targets, C classes, V vocab, H heads, D width, E width of a text's vector.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saucier import config as architecture
from saucier.config.questions import differs_by_head, draws_blocks
from saucier.errors import InputError
from saucier.objectives.base import IGNORED, MASK_OF_INPUT, Batch, Objective, WrappedObjective
from saucier.objectives.config import distillation as c
from saucier.objectives.cross_entropy import count_chunk_rows
from saucier.objectives.labels import ClassLabels, Groups, MultiLabels, NumberLabels, SpanLabels
from saucier.objectives.observed_pass import SIDES, ObservedAttention, ObservedPass
from saucier.objectives.prediction import AuxiliaryLanguageModelling, Prediction, get_language_head, is_custom
from saucier.parts.output import Output

LOSSES = "distillation.losses"
Heads = tuple[nn.Module, nn.Module]
"""The student and the teacher, whose heads turn vectors into tokens."""


def precise(x: Tensor) -> Tensor:
    """Return numbers in float32 at least, as losses are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


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
    known = chance > 0
    found = -(chance * student.masked_fill(~known, 0.0)).sum()
    if isinstance(divergence, c.KullbackLeibler):
        found = found + (chance * teacher.masked_fill(~known, 0.0)).sum()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftLoss(TeacherLoss):
    """The teacher's answers (C eq 36–37)."""

    config: c.SoftTargets

    @property
    def factor(self) -> float:
        """T², or 1."""
        return self.config.temperature**2 if isinstance(self.config.factor, c.SquaredTemperature) else 1.0

    def divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Sum over rows of logits, by a softmax at temperature T. Shapes: [..., C] both -> scalar."""
        student, teacher = (precise(one) / self.config.temperature for one in (student, teacher))
        return self.factor * compute_divergence(student.log_softmax(-1), teacher.log_softmax(-1),
                                                self.config.divergence)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftClasses(SoftLoss):
    """One class for each text, token or group of choices."""

    def count(self, batch: Batch) -> float:
        """Number of labels."""
        return float((batch["labels"] != IGNORED).sum())

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: logits [B, C] or [B, L, C]."""
        kept = (batch["labels"] != IGNORED).flatten()
        ours, theirs = (read_logits(one.output).flatten(0, -2)[kept] for one in (student, teacher))
        return self.divergence(ours, theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftDecisions(SoftLoss):
    """Labels that are true or false, each on its own."""

    def count(self, batch: Batch) -> float:
        """Number of decisions."""
        return float(batch["labels"].numel())

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: logits [B, C]; a sigmoid is the softmax of (z, 0)."""
        ours, theirs = (torch.stack([(logits := read_logits(one.output)), torch.zeros_like(logits)], dim=-1)
                        for one in (student, teacher))
        return self.divergence(ours, theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftNumbers(SoftLoss):
    """One number a text: the squared error to what the teacher says."""

    def count(self, batch: Batch) -> float:
        """Number of texts."""
        return float(batch["labels"].numel())

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: logits [B, 1]."""
        ours, theirs = (precise(read_logits(one.output)) for one in (student, teacher))
        return F.mse_loss(ours, theirs, reduction="sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftSpans(SoftLoss):
    """Where an answer starts and ends, padding being no place; the mean of both."""

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["input_ids"]))

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: logits [B, L]."""
        mask, found = batch.get("attention_mask"), torch.zeros((), device=batch["input_ids"].device)
        for name in ("start_logits", "end_logits"):
            ours, theirs = (precise(getattr(one.output, name)) for one in (student, teacher))
            if mask is not None:
                ours, theirs = (one.masked_fill(mask == 0, float("-inf")) for one in (ours, theirs))
            found = found + self.divergence(ours, theirs) / 2
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTokens(SoftLoss):
    """Tokens over the vocabulary; the logits of all places never exist at once."""

    def places(self, batch: Batch) -> Tensor:
        """Say where both are compared. Shapes: -> [B, L], boolean."""
        if isinstance(self.config.places, c.EveryToken):
            mask = batch.get("attention_mask")
            return torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()
        return batch["labels"] != IGNORED

    def count(self, batch: Batch) -> float:
        """Number of places."""
        return float(self.places(batch).sum())

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Apply both heads to some places after the other, and again for the backward pass."""
        kept = self.places(batch).flatten().nonzero()[:, 0]
        ours, theirs = (read_hidden(one.output).flatten(0, 1).index_select(0, kept) for one in (student, teacher))
        rows = count_chunk_rows(count_output_tokens(heads[0]), 4)

        def compare(own: Tensor, other: Tensor) -> Tensor:
            with torch.no_grad():
                wanted = give_token_logits(heads[1], other)
            return self.divergence(give_token_logits(heads[0], own), wanted)

        pieces = list(zip(ours.split(rows), theirs.split(rows), strict=True))
        if len(pieces) < 2 or not torch.is_grad_enabled():
            return torch.stack([compare(*piece) for piece in pieces]).sum()
        return torch.stack([checkpoint(compare, *piece, use_reentrant=False) for piece in pieces]).sum()


def give_token_logits(model: nn.Module, features: Tensor) -> Tensor:
    """Apply a model's language head. Shapes: [N, D] -> [N, V]."""
    found: Tensor = model.head(features) if is_custom(model) else get_language_head(model)(features)  # type: ignore
    return found


def count_output_tokens(model: nn.Module) -> int:
    """Return V."""
    body = cast(architecture.Transformer, model.config)
    return body.output_embed.vocab


def read_logits(output: Output) -> Tensor:
    """Return the logits of a pass."""
    assert output.logits is not None, "the head was checked"
    return output.logits


def read_hidden(output: Output) -> Tensor:
    """Return the vectors that a head reads. Shapes: -> [B, L, D]."""
    assert output.last_hidden_state is not None, "every pass gives it"
    return output.last_hidden_state


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLoss(TeacherLoss):
    """The vectors of whole texts."""

    config: c.TextVectors

    def count(self, batch: Batch) -> float:
        """Number of texts, or of pairs of texts of a group."""
        rows, group = batch["input_ids"].shape[:2]
        return float(rows * group * (group if isinstance(self.config.distance, c.CosineMatrix) else 1))

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: vectors [B * G, E]."""
        first, theirs = (one.output.embeddings for one in (student, teacher))
        assert first is not None and theirs is not None, "the heads were checked"
        ours, theirs = precise(first if project is None else project(first)), precise(theirs)
        match self.config.distance:
            case c.MeanSquared():
                return (ours - theirs).square().mean(-1).sum()
            case c.CosineDistance():
                near: Tensor = F.cosine_similarity(ours, theirs, dim=-1)
                return (1 - near).sum()
        group = batch["input_ids"].shape[1]
        cosines = [(unit := F.normalize(one, dim=-1).unflatten(0, (-1, group))) @ unit.transpose(1, 2)
                for one in (ours, theirs)]
        found: Tensor = (cosines[0] - cosines[1]).square().sum()
        return found


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


FORMS: Mapping[type[Objective], type[SoftLoss]] = {
    ClassLabels: SoftClasses, MultiLabels: SoftDecisions, NumberLabels: SoftNumbers, SpanLabels: SoftSpans,
    Prediction: SoftTokens}
"""What is learned -> how a teacher's answers to it are compared."""
TOKENWISE = (SoftSpans, SoftTokens)
"""Answers that are places or tokens, so that both must read the same tokens."""


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


def make_soft(config: c.SoftTargets, name: str, bodies: Bodies, _: c.Distillation) -> Iterator[TeacherLoss]:
    """Yield the loss of the teacher's answers. Raises `InputError` for an objective without such answers."""
    inner = unwrap_objective(bodies.inner)
    form = FORMS.get(type(inner))
    if form is None:
        better = "text_vectors" if isinstance(inner, Groups) else "hidden_states or attentions"
        raise InputError(f"soft_targets need answers with probabilities, and {type(inner).__name__} has none",
                         where=LOSSES, remedy=f"use {better}")
    if form in TOKENWISE or (form is SoftClasses and isinstance(bodies.student.head, architecture.TokenHead)):
        bodies.refuse_other_tokens(config.kind)
    if form is SoftTokens:
        sizes = bodies.student.output_embed.vocab, bodies.teacher.output_embed.vocab
        if sizes[0] != sizes[1] or not bodies.teacher.gives_token_logits:
            raise InputError(f"the student tells {sizes[0]:,} tokens apart, the teacher "
                             f"{sizes[1] if bodies.teacher.gives_token_logits else 0:,}", where=LOSSES,
                             remedy="give both the same vocabulary and a language head")
    if isinstance(config.places, c.EveryToken) and (form is not SoftTokens or len(bodies.student.stacks) > 1):
        raise InputError("every_token is for language models of a single stack", where=f"{LOSSES}.places",
                         remedy="use places: {kind: targets}")
    yield form(name=name, weight=config.weight, words="distance of the answers", config=config)


def make_vectors(config: c.TextVectors, name: str, bodies: Bodies, _: c.Distillation) -> Iterator[TeacherLoss]:
    """Yield the loss of text vectors. Raises `InputError` for models without them."""
    own, other = bodies.student.head, bodies.teacher.head
    if not (isinstance(own, architecture.EmbeddingHead) and isinstance(other, architecture.EmbeddingHead)
            and isinstance(unwrap_objective(bodies.inner), Groups)):
        raise InputError("text_vectors need two models that give vectors of texts", where=LOSSES,
                         remedy="use soft_targets, or the task embedding")
    ours, theirs = own.widths(bodies.student.width)[-1], other.widths(bodies.teacher.width)[-1]
    maps = ours != theirs and not isinstance(config.distance, c.CosineMatrix)
    yield VectorLoss(name=name, weight=config.weight, words="distance of the texts' vectors", config=config,
                     widths=(ours, theirs) if maps else None)


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


MAKERS: Mapping[type[c.DistillationLoss], Callable[[Any, str, Bodies, c.Distillation], Iterator[TeacherLoss]]] = {
    c.SoftTargets: make_soft, c.HiddenStates: make_states, c.Embeddings: make_states, c.Attentions: make_attentions,
    c.ValueRelations: make_relations, c.AttentionRelations: make_relations, c.TextVectors: make_vectors}
"""Loss -> what makes it for two bodies; the hard targets are the inner objective's own loss."""


def make_losses(config: c.Distillation, inner: Objective, student: architecture.Transformer,
                teacher: architecture.Transformer, *, aligned: bool) -> tuple[TeacherLoss, ...]:
    """Return all that is learned from a teacher. Raises `InputError` for what one of both bodies cannot have."""
    bodies = Bodies(inner, student, teacher, aligned)
    return tuple(found for name, one in config.named() if not isinstance(one, c.HardTargets)
                 for found in MAKERS[type(one)](one, name, bodies, config))
