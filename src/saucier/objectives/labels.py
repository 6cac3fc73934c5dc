"""Objectives of heads without a vocabulary: classes, numbers, spans, replaced tokens.

Letters: B batch, L length, C classes, N choices.
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
