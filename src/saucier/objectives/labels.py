"""Objectives of heads without a vocabulary: classes, numbers, spans, replaced tokens, and vectors of texts
(contrastive).

Letters: B batch, L length, C classes, N choices, G texts of a group, E width of a vector.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.config import Transformer, sees_prefix
from saucier.objectives.base import IGNORED, Batch, Loss, LossPart, Objective
from saucier.parts.heads import DoubleHead
from saucier.parts.output import Output
from saucier.parts.pooling import Reading

TARGETS = ("labels", "start_positions", "end_positions")


def run_model(model: nn.Module, batch: Batch) -> Output:
    """Call the model with everything that is not a target.

    Of a double head only the choices are scored, as `logits`: those of the words would be [B, N, L, V].
    """
    inputs = open_prefix_to_whole_text(model, {name: value for name, value in batch.items() if name not in TARGETS})
    head = getattr(model, "head", None)
    if not isinstance(head, DoubleHead):
        return model(**inputs)  # type: ignore[no-any-return]  # a model gives that
    output: Output = model(**inputs, compute_logits=False)
    assert output.last_hidden_state is not None, "every model gives it"
    output.logits = head.choice.scores(Reading(output.last_hidden_state, inputs=inputs,  # type: ignore[arg-type]
                                               choices=inputs["input_ids"].shape[1]))
    return output


def open_prefix_to_whole_text(model: nn.Module, inputs: Batch) -> Batch:
    """Tell a decoder with a prefix that all of a text may be seen: what is only read is all prefix.

    Shapes: ids [B, L], or [B, N, L] -> prefix_length [B], or [B * N].
    """
    config = getattr(model, "config", None)
    if not isinstance(config, Transformer) or not sees_prefix(config.decoder):
        return inputs
    *rows, length = inputs["input_ids"].shape
    return inputs | {"prefix_length": inputs["input_ids"].new_full((math.prod(rows),), length)}


class LabelObjective(Objective):
    """What has one loss, over `labels`."""

    __slots__ = ()

    parts: ClassVar[tuple[str, ...]] = ("labels",)
    """One part."""


class LogitObjective(LabelObjective):
    """What is learned from a head's logits alone."""

    __slots__ = ()

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of labels."""
        return {"labels": float(batch["labels"].numel())}

    @abstractmethod
    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss of logits, and figures."""

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss of what the model gives, and figures."""
        return self.of(get_logits(run_model(model, batch)), batch)


def get_logits(output: Output) -> Tensor:
    """Return the logits of a head that gives some."""
    assert output.logits is not None, "the head gives logits"
    return output.logits


@dataclass(frozen=True, slots=True)
class ClassLabels(LogitObjective):
    """Cross-entropy of one label for each text, token or group of choices: `labels` [B] or [B, L], -100 is no target.

    Source: Devlin et al. 2019, §4 (texts, tokens); Radford et al. 2018, §3.2, eq 4, and §3.3 (choices).
    """

    weights: tuple[float, ...] | None = None
    """What a label of each class counts; None: all the same."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of labels, each as much as it counts."""
        targets = batch["labels"].flatten()
        kept = targets[targets != IGNORED]
        return {"labels": float(kept.numel() if self.weights is None else torch.tensor(self.weights)[kept.cpu()].sum())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many were right."""
        flat, targets = logits.flatten(0, -2).float(), batch["labels"].flatten()
        weights = None if self.weights is None else flat.new_tensor(self.weights)
        wrong = F.cross_entropy(flat, targets, weight=weights, ignore_index=IGNORED, reduction="sum")
        count = float((targets != IGNORED).sum())
        right = (flat.argmax(-1) == targets).sum().float()
        return Loss({"labels": LossPart(wrong, self.count(batch)["labels"])},
                    {"correct": LossPart(right.detach(), count)})


@dataclass(frozen=True, slots=True)
class NumberLabels(LogitObjective):
    """Squared error of one number a text: `labels` [B], a head of one class.

    Source: Devlin et al. 2019, §4.1 (STS-B).
    """

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed squared error."""
        found = logits.float()
        targets = batch["labels"].to(found.dtype).view_as(found)
        return Loss({"labels": LossPart(F.mse_loss(found, targets, reduction="sum"), float(found.numel()))})


@dataclass(frozen=True, slots=True)
class MultiLabels(LogitObjective):
    """Each label is true or false on its own: `labels` [B, C] of 0 and 1; cross-entropy of each with its sigmoid."""

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many decisions were right."""
        return compute_binary_loss(logits, batch["labels"], None)


@dataclass(frozen=True, slots=True)
class ReplacedTokenLabels(LogitObjective):
    """Was this token replaced? `labels` [B, L] of 0 and 1, at every real token.

    Source: Clark et al. 2020, §3.1, eq 3, arXiv:2003.10555.
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of real tokens."""
        mask = batch.get("attention_mask")
        return {"labels": float(batch["labels"].numel() if mask is None else mask.sum())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many decisions were right."""
        return compute_binary_loss(logits, batch["labels"], batch.get("attention_mask"))


def compute_binary_loss(logits: Tensor, labels: Tensor, mask: Tensor | None) -> Loss:
    """Summed binary cross-entropy where the mask is 1; everywhere without one. Shapes: all [...]."""
    logits = logits.float()
    weight = torch.ones_like(logits) if mask is None else mask.to(logits.dtype)
    wrong = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), weight=weight, reduction="sum")
    right = (((logits > 0) == labels.bool()) * weight).sum()
    return Loss({"labels": LossPart(wrong, float(weight.sum()))},
                {"correct": LossPart(right.detach(), float(weight.sum()))})


@dataclass(frozen=True, slots=True)
class SpanLabels(Objective):
    """Where an answer starts and ends: `start_positions` and `end_positions` [B].

    A place outside the row is no target. The loss is the mean of both. Padding does not compete with the text, which
    the published code lets it do: there, the loss of a row depends on how far it was padded.
    Source: Devlin et al. 2019, §4.2.
    """

    parts: ClassVar[tuple[str, ...]] = ("start", "end")
    """Both ends of an answer."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of starts and of ends."""
        return {name: float(mark_inside(batch[f"{name}_positions"], batch["input_ids"].shape[-1]).sum())
                for name in ("start", "end")}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        output = run_model(model, batch)
        parts = {}
        for name in ("start", "end"):
            logits: Tensor = getattr(output, f"{name}_logits").float()
            if (mask := batch.get("attention_mask")) is not None:
                logits = logits.masked_fill(mask == 0, float("-inf"))
            targets = batch[f"{name}_positions"].flatten()
            kept = mark_inside(targets, logits.shape[1])
            wrong = F.cross_entropy(logits[kept], targets[kept], reduction="sum")
            parts[name] = LossPart(wrong / 2, float(kept.sum()))
        return Loss(parts)


def mark_inside(places: Tensor, length: int) -> Tensor:
    """Say which places are positions of the text. Shapes: [B] -> [B]."""
    flat = places.flatten()
    return (flat >= 0) & (flat < length)


class Groups(LabelObjective):
    """A loss over the vectors of groups of texts."""

    __slots__ = ()

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of groups."""
        return {"labels": float(len(batch["input_ids"]))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        losses = self.losses(compute_group_vectors(model, batch), batch)
        return Loss({"labels": LossPart(losses.sum(), float(len(losses)))})

    @abstractmethod
    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each group. Shapes: vectors [B, G, E] of length one -> [B]."""


@dataclass(frozen=True, slots=True)
class InBatchNegatives(Groups):
    """Each text must find its own pair among the pairs (and the wrong texts) of the whole batch: softmax of cosines.

    The pairs of other texts that are spelled like its own are no negatives. What a batch holds decides what is
    learned: more rows are a harder task.
    Source: Henderson et al. 2017, §4.4, arXiv:1705.00652; van den Oord et al. 2018, eq 4, arXiv:1807.03748.
    """

    scale: float
    """Factor on the cosines: one over the temperature."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over [B, B * (G - 1)] candidates: all pairs, then all wrong texts."""
        candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)
        scores = self.scale * vectors[:, 0] @ candidates.T
        targets = torch.arange(len(vectors), device=vectors.device)
        return F.cross_entropy(scores.masked_fill(mark_equal_texts(batch["input_ids"]), float("-inf")), targets,
                               reduction="none")


COSINE_SCALE = 20.0
"""Factor on cosines before a softmax: what retrievers of sentence-transformers are trained with (code release)."""


def choose_scale(scale: float | None, config: Transformer) -> float:
    """Return the factor on inner products of a model's vectors: what is said, or 1, or that of cosines."""
    return scale or (COSINE_SCALE if getattr(config.head, "normalize", False) else 1.0)


@dataclass(frozen=True, slots=True)
class InverseClozeLabels(LabelObjective):
    """Each sentence must find its own passage among those of the batch: softmax of inner products, of any length.

    The batch: ids [B, 2, L], sentence and passage, and `blocks` [B], the number of each passage; where a passage is
    there with another sentence, it is no negative.
    Source: Lee et al. 2019, §3 and §5, arXiv:1906.00300 (eq 66, 70).
    """

    scale: float | None = None
    """Factor on the inner products; None: as `choose_scale` says."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of sentences."""
        return {"labels": float(len(batch["input_ids"]))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss, and how many found their passage."""
        shape, blocks = batch["input_ids"].shape, batch["blocks"]
        flat = {name: value.flatten(0, 1) for name, value in batch.items() if value.shape == shape}
        output = model(**open_prefix_to_whole_text(model, flat))
        vectors: Tensor = output.embeddings.float() if output.embeddings.dtype.itemsize < 4 else output.embeddings
        questions, passages = vectors.view(*shape[:2], -1).unbind(1)
        scale = choose_scale(self.scale, model.config)  # type: ignore[arg-type]  # of a Transformer
        scores = scale * questions @ passages.T
        targets = torch.arange(len(scores), device=scores.device)
        others = (blocks[:, None] == blocks[None]) & (targets[:, None] != targets[None])
        scores = scores.masked_fill(others, float("-inf"))
        right = (scores.argmax(-1) == targets).sum().float()
        return Loss({"labels": LossPart(F.cross_entropy(scores, targets, reduction="sum"), float(len(scores)))},
                    {"correct": LossPart(right.detach(), float(len(scores)))})


@dataclass(frozen=True, slots=True)
class Cosine(Groups):
    """The cosine of two texts must be their score: squared error. Source: Reimers and Gurevych 2019, §3."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """`labels` [B], scores between 0 and 1."""
        return (compute_cosines(vectors)[:, 0] - batch["labels"].to(vectors.dtype)) ** 2


@dataclass(frozen=True, slots=True)
class Contrastive(Groups):
    """Texts that belong together are pulled together, others pushed apart up to a margin; distance = 1 - cosine.

    Source: Hadsell et al. 2006, "Dimensionality Reduction by Learning an Invariant Mapping", eq 4.
    """

    margin: float

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """`labels` [B], 1 = they belong together."""
        distance = 1 - compute_cosines(vectors)[:, 0]
        together = batch["labels"].to(vectors.dtype)
        return (together * distance ** 2 + (1 - together) * F.relu(self.margin - distance) ** 2) / 2


@dataclass(frozen=True, slots=True)
class Triplets(Groups):
    """A text must be nearer to its pair than to the wrong text, by a margin; Euclidean distance.

    Source: Reimers and Gurevych 2019, §3 (triplet objective), arXiv:1908.10084. There the vectors have any length; here
    they have length one, so that distances are below 2.
    """

    margin: float

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """No labels."""
        near, far = ((vectors[:, 0] - vectors[:, side]).norm(dim=-1) for side in (1, 2))
        return F.relu(near - far + self.margin)


def compute_group_vectors(model: nn.Module, batch: Batch) -> Tensor:
    """Return the vectors of all texts, of length one. Shapes: ids [B, G, L] -> [B, G, E]."""
    shape = batch["input_ids"].shape
    flat = {name: value.flatten(0, 1) for name, value in batch.items() if value.shape == shape}
    vectors: Tensor = model(**open_prefix_to_whole_text(model, flat)).embeddings
    return F.normalize(vectors.float(), dim=-1).view(*shape[:2], -1)


def compute_cosines(vectors: Tensor) -> Tensor:
    """Return the cosines of the first text with the others. Shapes: [B, G, E] -> [B, G - 1]."""
    return (vectors[:, :1] * vectors[:, 1:]).sum(-1)


def mark_equal_texts(ids: Tensor) -> Tensor:
    """Say which candidates are spelled like a text's own pair, without being it. Shapes: [B, G, L] -> [B, B*(G-1)]."""
    candidates = ids[:, 1:].transpose(0, 1).flatten(0, 1)
    same = (ids[:, 1, None] == candidates[None]).all(-1)
    same[:, :len(ids)] &= ~torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    return same
