"""Language modelling in both directions: the next and the previous token of each row as labels, and the sum of both
losses.

Letters: B batch, L length, D dim.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives.base import (
    IGNORED,
    Batch,
    Loss,
    LossPart,
    Objective,
    ObjectiveInputs,
    RowCorruption,
    to_int_tensor,
)
from saucier.objectives.batch_layout import add_row_inputs
from saucier.objectives.config.bidirectional import Bidirectional, SampledSoftmax, Softmax, WholeSoftmax
from saucier.objectives.cross_entropy import LossSums, compute_cross_entropy, compute_sampled_cross_entropy
from saucier.objectives.prediction import select_targets
from saucier.parts.heads import BidirectionalHead
from saucier.text.rows.batch import Rows


@dataclass(frozen=True, slots=True)
class BidirectionalCorruption(RowCorruption):
    """Nothing is changed: the labels of a token are the one after it and the one before it, in its document."""

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Label the rows. Shapes: rows [B, L] -> input_ids, labels, previous [B, L]."""
        same = rows.mask[:, 1:] & (rows.documents[:, 1:] == rows.documents[:, :-1])
        predicted = np.arange(rows.tokens.shape[1]) >= rows.context[:, None]
        after, before = np.full_like(rows.tokens, IGNORED), np.full_like(rows.tokens, IGNORED)
        after[:, :-1] = np.where(same & predicted[:, 1:], rows.tokens[:, 1:], IGNORED)
        before[:, 1:] = np.where(same & predicted[:, :-1], rows.tokens[:, :-1], IGNORED)
        return add_row_inputs(rows, {"input_ids": to_int_tensor(rows.tokens), "labels": to_int_tensor(after),
                                     "previous": to_int_tensor(before)})


@dataclass(frozen=True, slots=True)
class BothDirections(Objective):
    """The sum of a forward and a backward language model's losses, which share token table and output layer.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365 (C eq 15).
    """

    softmax: Softmax = field(default_factory=WholeSoftmax)
    """Over which tokens the training loss is."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The next tokens, and the previous ones."""
        return ("tokens", "backward")

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets of each direction."""
        return {name: float((batch[labels] != IGNORED).sum())
                for name, labels in (("tokens", "labels"), ("backward", "previous"))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed losses."""
        inputs = {name: value for name, value in batch.items() if name not in ("labels", "previous")}
        ahead, back = model(**inputs, compute_logits=False).last_hidden_state.chunk(2, dim=-1)
        next_one, previous = (sum_direction_losses(model, hidden, batch[labels], self.softmax)
                              for hidden, labels in ((ahead, "labels"), (back, "previous")))
        count = self.count(batch)
        both = sum(count.values())
        figures = {"nll": LossPart(next_one.nll + previous.nll, both),
                   "correct": LossPart(next_one.correct + previous.correct, both)}
        return Loss({"tokens": LossPart(next_one.loss, count["tokens"]),
                     "backward": LossPart(previous.loss, count["backward"])}, figures)


def sum_direction_losses(model: nn.Module, hidden: Tensor, labels: Tensor, softmax: Softmax) -> LossSums:
    """Sum the losses of one direction. Shapes: hidden [B, L, D/2], labels [B, L]."""
    head = getattr(model, "head", None)
    if not isinstance(head, BidirectionalHead):
        raise InputError("both directions are learned by a head that reads them apart", where="model.head",
                         remedy="use kind: bidirectional")
    features, targets = select_targets(hidden, labels)
    given = head.language.prepare(features), head.language.matrix, head.language.bias, targets
    match softmax:
        case SampledSoftmax(samples=samples) if torch.is_grad_enabled() and samples < len(head.language.matrix):
            return compute_sampled_cross_entropy(*given, samples=samples)
        case _:
            return compute_cross_entropy(*given)


def build_bidirectional(config: Bidirectional,
                        given: ObjectiveInputs) -> tuple[BidirectionalCorruption, BothDirections]:
    """Build both halves."""
    return BidirectionalCorruption(), BothDirections(config.softmax)
