"""Objectives of heads without a vocabulary: labels of texts and tokens, numbers, spans, choices, replaced tokens.

Letters: B batch, L length, C classes, N choices.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.config import Transformer, sees_prefix
from saucier.objectives.base import IGNORED, Batch, Loss, Objective, Part
from saucier.parts.heads import DoubleHead, Reading
from saucier.parts.output import Output

TARGETS = ("labels", "start_positions", "end_positions")


def run(model: nn.Module, batch: Batch) -> Output:
    """Call the model with everything that is not a target.

    Of a double head only the choices are scored, as `logits`: those of the words would be [B, N, L, V].
    """
    inputs = read_whole(model, {name: value for name, value in batch.items() if name not in TARGETS})
    head = getattr(model, "head", None)
    if not isinstance(head, DoubleHead):
        return model(**inputs)  # type: ignore[no-any-return]  # a model gives that
    output: Output = model(**inputs, compute_logits=False)
    assert output.last_hidden_state is not None, "every model gives it"
    output.logits = head.choice.scores(Reading(output.last_hidden_state, inputs=inputs,  # type: ignore[arg-type]
                                               choices=inputs["input_ids"].shape[1]))
    return output


def read_whole(model: nn.Module, inputs: Batch) -> Batch:
    """Tell a decoder with a prefix that all of a text may be seen: what is only read is all prefix.

    Shapes: ids [B, L], or [B, N, L] -> prefix_length [B], or [B * N].
    """
    config = getattr(model, "config", None)
    if not isinstance(config, Transformer) or not sees_prefix(config.decoder):
        return inputs
    *rows, length = inputs["input_ids"].shape
    return inputs | {"prefix_length": inputs["input_ids"].new_full((math.prod(rows),), length)}


def classified(logits: Tensor, labels: Tensor) -> Loss:
    """Summed cross-entropy over the targets that are not ignored. Shapes: logits [..., C], labels [...]."""
    flat, wanted = logits.flatten(0, -2).float(), labels.flatten()
    wrong = F.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="sum")
    count = float((wanted != IGNORED).sum())
    right = (flat.argmax(-1) == wanted).sum().float()
    return Loss({"labels": Part(wrong, count)}, {"correct": Part(right.detach(), count)})


class Labels(Objective):
    """What has one loss, over `labels`."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """One part."""
        return ("labels",)


class OfLogits(Labels):
    """What is learned from a head's logits alone."""

    __slots__ = ()

    @abstractmethod
    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss of logits, and figures."""

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss of what the model gives, and figures."""
        return self.of(logits_of(run(model, batch)), batch)


def logits_of(output: Output) -> Tensor:
    """Return the logits of a head that gives some."""
    assert output.logits is not None, "the head gives logits"
    return output.logits


@dataclass(frozen=True, slots=True)
class Classes(OfLogits):
    """Cross-entropy of one label for each text, token or group of choices: `labels` [B] or [B, L], -100 is no target.

    Source: Devlin et al. 2019, §4 (texts, tokens); Radford et al. 2018, §3.2, eq 4, and §3.3 (choices).
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of labels."""
        return {"labels": float((batch["labels"] != IGNORED).sum())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many were right."""
        return classified(logits, batch["labels"])


@dataclass(frozen=True, slots=True)
class Numbers(OfLogits):
    """Squared error of one number a text: `labels` [B], a head of one class.

    Source: Devlin et al. 2019, §4.1 (STS-B).
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of values."""
        return {"labels": float(batch["labels"].numel())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed squared error."""
        found = logits.float()
        wanted = batch["labels"].to(found.dtype).view_as(found)
        return Loss({"labels": Part(F.mse_loss(found, wanted, reduction="sum"), float(found.numel()))})


@dataclass(frozen=True, slots=True)
class ManyLabels(OfLogits):
    """Each label is true or false on its own: `labels` [B, C] of 0 and 1; cross-entropy of each with its sigmoid."""

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of decisions."""
        return {"labels": float(batch["labels"].numel())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many decisions were right."""
        return decided(logits, batch["labels"], torch.ones_like)


@dataclass(frozen=True, slots=True)
class Replaced(OfLogits):
    """Was this token replaced? `labels` [B, L] of 0 and 1, at every real token.

    Source: Clark et al. 2020, §3.1, eq 3, arXiv:2003.10555.
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of real tokens."""
        mask = batch.get("attention_mask")
        return {"labels": float(batch["labels"].numel() if mask is None else mask.sum())}

    def of(self, logits: Tensor, batch: Batch) -> Loss:
        """Return the summed loss and how many decisions were right."""
        mask = batch.get("attention_mask")
        counted = torch.ones_like if mask is None else lambda logits: mask.to(logits.dtype)
        return decided(logits, batch["labels"], counted)


def decided(logits: Tensor, labels: Tensor, counted: Callable[[Tensor], Tensor]) -> Loss:
    """Summed binary cross-entropy where `counted` gives 1. Shapes: logits and labels [...]."""
    logits = logits.float()
    weight = counted(logits)
    wrong = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), weight=weight, reduction="sum")
    right = (((logits > 0) == labels.bool()) * weight).sum()
    return Loss({"labels": Part(wrong, float(weight.sum()))}, {"correct": Part(right.detach(), float(weight.sum()))})


@dataclass(frozen=True, slots=True)
class Spans(Objective):
    """Where an answer starts and ends: `start_positions` and `end_positions` [B].

    A place outside the row is no target. The loss is the mean of both. Padding does not compete with the text, which
    the published code lets it do: there, the loss of a row depends on how far it was padded.
    Source: Devlin et al. 2019, §4.2.
    """

    @property
    def parts(self) -> tuple[str, ...]:
        """Both ends of an answer."""
        return ("start", "end")

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of starts and of ends."""
        return {name: float(inside(batch[f"{name}_positions"], batch["input_ids"].shape[-1]).sum())
                for name in ("start", "end")}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        output = run(model, batch)
        parts = {}
        for name in ("start", "end"):
            logits: Tensor = getattr(output, f"{name}_logits").float()
            if (mask := batch.get("attention_mask")) is not None:
                logits = logits.masked_fill(mask == 0, float("-inf"))
            wanted = batch[f"{name}_positions"].flatten()
            kept = inside(wanted, logits.shape[1])
            wrong = F.cross_entropy(logits[kept], wanted[kept], reduction="sum")
            parts[name] = Part(wrong / 2, float(kept.sum()))
        return Loss(parts)


def inside(places: Tensor, length: int) -> Tensor:
    """Say which places are positions of the text. Shapes: [B] -> [B]."""
    flat = places.flatten()
    return (flat >= 0) & (flat < length)
