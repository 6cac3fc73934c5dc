"""A teacher's answers as targets: soft labels, numbers, places, tokens, and the vectors of texts.

Letters: B batch, G texts of a group, L length, N targets, C classes, V vocab, D width, E width of a text's vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saucier import config as architecture
from saucier.errors import InputError
from saucier.objectives.base import IGNORED, Batch, Objective
from saucier.objectives.config import distillation as c
from saucier.objectives.config.stored_outputs import MostLikely
from saucier.objectives.contrastive import Groups
from saucier.objectives.cross_entropy import count_chunk_rows
from saucier.objectives.labels import ClassLabels, MultiLabels, NumberLabels, SpanLabels
from saucier.objectives.observed_pass import ObservedPass
from saucier.objectives.prediction import Prediction, get_language_head, is_custom
from saucier.objectives.teacher_losses import (
    LOSSES,
    Bodies,
    Heads,
    TeacherLoss,
    compute_divergence,
    precise,
    unwrap_objective,
)
from saucier.parts.output import Output


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftLoss(TeacherLoss):
    """The teacher's answers (C eq 36–37)."""

    config: c.SoftTargets

    @property
    def reads(self) -> tuple[str, ...]:
        """The logits."""
        return ("logits",)

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

    @property
    def reads(self) -> tuple[str, ...]:
        """The logits of both ends."""
        return ("start_logits", "end_logits")

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["input_ids"]))

    def __call__(self, student: ObservedPass, teacher: ObservedPass, batch: Batch, *, heads: Heads,
                 project: nn.Module | None) -> Tensor:
        """Shapes: logits [B, L]."""
        mask, found = batch.get("attention_mask"), torch.zeros((), device=batch["input_ids"].device)
        for name in self.reads:
            ours, theirs = (precise(getattr(one.output, name)) for one in (student, teacher))
            if mask is not None:
                ours, theirs = (one.masked_fill(mask == 0, float("-inf")) for one in (ours, theirs))
            found = found + self.divergence(ours, theirs) / 2
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftTokens(SoftLoss):
    """Tokens over the vocabulary; the logits of all places never exist at once."""

    vocab: int = 0
    """Tokens that both tell apart."""
    kept: MostLikely | None = None
    """Which tokens a store keeps; None: what all of them are computed from."""

    @property
    def reads(self) -> tuple[str, ...]:
        """What the head reads, or the most likely tokens and their log probabilities."""
        if self.kept is None:
            return ("last_hidden_state",)
        name = f"largest.{self.kept.tokens}.{self.config.temperature:g}"
        return (f"{name}.ids", f"{name}.logs")

    def summarize(self, teacher: ObservedPass, head: nn.Module) -> None:
        """Find the most likely tokens at every place. Shapes: ids [B, L, K], log probabilities [B, L, K + 1]."""
        if self.kept is None:
            return
        features = teacher.output.last_hidden_state
        assert features is not None, "every pass gives it"
        found = list[tuple[Tensor, Tensor]]()
        for rows in features.flatten(0, 1).split(count_chunk_rows(self.vocab, 4)):
            logs = self.log_probabilities(give_token_logits(head, rows))
            ids = logs.topk(self.kept.tokens, dim=-1).indices
            found.append((ids.int(), gather_outcomes(logs, ids)))
        ids, logs = (torch.cat(one).unflatten(0, features.shape[:2]) for one in zip(*found, strict=True))
        teacher.largest |= dict(zip(self.reads, (ids, logs), strict=True))

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the logarithm of the softmax at temperature T. Shapes: [N, V] -> the same."""
        return (precise(logits) / self.config.temperature).log_softmax(-1)

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
        kept, stored = self.places(batch).flatten().nonzero()[:, 0], self.kept is not None and bool(teacher.largest)
        first = student.output.last_hidden_state
        theirs = [teacher.largest[name] for name in self.reads] if stored else [teacher.output.last_hidden_state]
        assert first is not None and theirs[0] is not None, "every pass gives it"
        rows = count_chunk_rows(self.vocab, 4)

        def compare(own: Tensor, *other: Tensor) -> Tensor:
            made = give_token_logits(heads[0], own)
            if stored:
                ours = gather_outcomes(self.log_probabilities(made), other[0].long())
                return self.factor * compute_divergence(ours, precise(other[1]), self.config.divergence)
            with torch.no_grad():
                wanted = give_token_logits(heads[1], other[0])
            return self.divergence(made, wanted)

        pieces = list(zip(*(one.flatten(0, 1).index_select(0, kept).split(rows) for one in (first, *theirs)),
                          strict=True))
        if len(pieces) < 2 or not torch.is_grad_enabled():
            return torch.stack([compare(*piece) for piece in pieces]).sum()
        return torch.stack([checkpoint(compare, *piece, use_reentrant=False) for piece in pieces]).sum()


def gather_outcomes(logs: Tensor, ids: Tensor) -> Tensor:
    """Return log probabilities of some tokens, and of all others as one more outcome.

    Shapes: logs [N, V], ids [N, K] -> [N, K + 1].
    """
    others = logs.scatter(-1, ids, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([logs.gather(-1, ids), others], dim=-1)


def give_token_logits(model: nn.Module, features: Tensor) -> Tensor:
    """Apply a model's language head. Shapes: [N, D] -> [N, V]."""
    found: Tensor = model.head(features) if is_custom(model) else get_language_head(model)(features)  # type: ignore
    return found


def read_logits(output: Output) -> Tensor:
    """Return the logits of a pass."""
    assert output.logits is not None, "the head was checked"
    return output.logits


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLoss(TeacherLoss):
    """The vectors of whole texts."""

    config: c.TextVectors

    @property
    def reads(self) -> tuple[str, ...]:
        """The vectors."""
        return ("embeddings",)

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


FORMS: Mapping[type[Objective], type[SoftLoss]] = {
    ClassLabels: SoftClasses, MultiLabels: SoftDecisions, NumberLabels: SoftNumbers, SpanLabels: SoftSpans,
    Prediction: SoftTokens}
"""What is learned -> how a teacher's answers to it are compared."""
TOKENWISE = (SoftSpans, SoftTokens)
"""Answers that are places or tokens, so that both must read the same tokens."""


def make_soft(config: c.SoftTargets, name: str, bodies: Bodies, whole: c.Distillation) -> Iterator[TeacherLoss]:
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
    more: dict[str, Any] = {}
    if form is SoftTokens:
        tokens = None if whole.stored is None else whole.stored.tokens
        kept = tokens if isinstance(tokens, MostLikely) else None
        more = {"vocab": bodies.student.output_embed.vocab, "kept": kept}
        if kept is not None and kept.tokens >= more["vocab"]:
            raise InputError(f"{kept.tokens} tokens are to be kept, and the models tell {more['vocab']} apart",
                             where="distillation.stored.tokens", remedy="keep fewer, or leave it out: all are kept")
    yield form(name=name, weight=config.weight, words="distance of the answers", config=config, **more)


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
