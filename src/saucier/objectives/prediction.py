"""`Prediction`, the objective behind causal, masked, span and sequence-to-sequence learning: tokens at chosen
positions.

The head and the cross-entropy run on the positions that have a label, and nowhere else.
Letters: B batch, L length, D dim, V vocab, N targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives.base import IGNORED, Batch, Loss, Part
from saucier.objectives.cross_entropy import Sums, chunk_rows, cross_entropy
from saucier.parts.adaptive import AdaptiveHead
from saucier.parts.heads import DoubleHead, LanguageHead, PretrainingHead

TARGETS = ("labels", "next_sentence")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Cross-entropy of `labels` [B, L], and of `next_sentence` [B] where the batch has it.

    Source: Devlin et al. 2019, §3.1, arXiv:1810.04805.
    """

    label_smoothing: float = 0.0

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets: tokens with a label, and rows with a second sentence."""
        counts = {"tokens": float((batch["labels"] != IGNORED).sum())}
        if "next_sentence" in batch:
            counts["sentences"] = float(len(batch["next_sentence"]))
        return counts

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss; `nll` and, without gradients, `correct` are among its figures."""
        inputs = {name: value for name, value in batch.items() if name not in TARGETS}
        output = model(**inputs, compute_logits=False)
        features, targets = chosen(output.last_hidden_state, batch["labels"])
        sums = token_sums(model, features, targets, smoothing=self.label_smoothing)
        count = float(len(targets))
        figures = {"nll": Part(sums.nll, count), "correct": Part(sums.correct, count)}
        loss = Loss({"tokens": Part(sums.loss, count)}, figures)
        if "next_sentence" in batch:
            logits = sentence_head(model)(output.pooler_output).float()
            wrong = F.cross_entropy(logits, batch["next_sentence"], reduction="sum")
            loss.parts["sentences"] = Part(wrong, float(len(logits)))
            right = (logits.argmax(dim=-1) == batch["next_sentence"]).sum().float()
            loss.figures["sentences_correct"] = Part(right, float(len(logits)))
        return loss


def chosen(hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Keep the positions that have a label. Shapes: [B, L, D], [B, L] -> [N, D], [N]."""
    hidden, labels = hidden.flatten(0, 1), labels.flatten()
    index = (labels != IGNORED).nonzero()[:, 0]
    if len(index) == len(labels):
        return hidden, labels
    return hidden.index_select(0, index), labels.index_select(0, index)


def token_sums(model: nn.Module, features: Tensor, targets: Tensor, *, smoothing: float) -> Sums:
    """Sum the losses of targets by the model's head. Shapes: features [N, D], targets [N].

    Raises `InputError` for smoothing over clusters, and for a model whose head gives no tokens.
    """
    if not isinstance(adaptive := getattr(model, "head", None), AdaptiveHead):
        head = language_head(model)
        return cross_entropy(head.prepare(features), head.matrix, head.bias, targets, smoothing=smoothing)
    if smoothing:
        raise InputError("an adaptive head scores only the clusters of its targets, and smoothing needs all tokens",
                         where="objective.label_smoothing", remedy="use 0")
    loss, right = adaptive.losses(features, targets).sum(), torch.zeros((), device=features.device)
    if not torch.is_grad_enabled():
        rows = chunk_rows(adaptive.vocab, features.element_size())
        pieces = zip(features.split(rows), targets.split(rows), strict=True)
        right = sum(((adaptive(part).argmax(-1) == wanted).sum() for part, wanted in pieces), right)
    return Sums(loss, loss.detach(), right)


def language_head(model: nn.Module) -> LanguageHead:
    """Return the head that speaks tokens. Raises `InputError` when the model has none."""
    match getattr(model, "head", None):
        case PretrainingHead() | DoubleHead() as head:
            return head.language
        case LanguageHead() as head:
            return head
        case _:
            raise InputError("the model has no language head to learn tokens with", where="model.head",
                             remedy="use kind: language")


def sentence_head(model: nn.Module) -> nn.Linear:
    """Return the next-sentence classifier. Raises `InputError` when the model has none."""
    head = getattr(model, "head", None)
    if not isinstance(head, PretrainingHead):
        raise InputError("the model has no classifier for next-sentence prediction", where="model.head",
                         remedy="use kind: pretraining")
    return head.sentence
