"""`Prediction`, the objective behind causal, masked, span and sequence-to-sequence learning: tokens at chosen
positions.

The head and the cross-entropy run on the positions that have a label, and nowhere else.
Letters: B batch, L length, D dim, V vocab, N targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.objectives.base import IGNORED, Batch, Loss, Objective, Part
from saucier.objectives.cross_entropy import Sums, chunk_rows, cross_entropy
from saucier.parts.adaptive import AdaptiveHead
from saucier.parts.heads import DoubleHead, LanguageHead, LengthHead, PretrainingHead
from saucier.parts.output import Output


class Beside(ABC):
    """What is learned from the same forward pass as the tokens: a further part of the loss."""

    __slots__ = ()

    @property
    @abstractmethod
    def part(self) -> str:
        """The name of its part."""

    @property
    def targets(self) -> tuple[str, ...]:
        """What it takes from the batch, and the model does not get."""
        return ()

    @property
    def figures(self) -> Mapping[str, str]:
        """Its figures, and what a report calls each."""
        return {}

    @property
    def asks(self) -> Mapping[str, bool]:
        """What the model must be asked to give, such as `output_hidden_states`."""
        return {}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules of its own that are trained with the model."""
        return {}

    def at(self, step: int) -> Beside | None:
        """Return what it is at a step of the training; None when it rests."""
        return self

    def held_out(self) -> Beside | None:
        """Return what is measured of it on held-out text; None where it is there for training alone."""
        return self

    def bind(self, model: nn.Module) -> None:  # noqa: B027 - most companions have no modules
        """Make its modules, on the model's device."""

    @abstractmethod
    def count(self, batch: Batch) -> float:
        """Number of its targets."""

    @abstractmethod
    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return its part of the loss, and its figures."""


@dataclass(frozen=True, slots=True)
class Prediction(Objective):
    """Cross-entropy of `labels` [B, L], and what is learned beside them.

    Source: Devlin et al. 2019, §3.1, arXiv:1810.04805.
    """

    label_smoothing: float = 0.0
    beside: tuple[Beside, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Tokens, and a part for each companion."""
        return ("tokens", *(one.part for one in self.beside))

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of the companions."""
        return {name: words for one in self.beside for name, words in one.figures.items()}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the companions."""
        return {name: module for one in self.beside for name, module in one.modules.items()}

    def at(self, step: int) -> Prediction:
        """Return the prediction with the companions that are awake at a step."""
        return self.only([one.at(step) for one in self.beside])

    def held_out(self) -> Prediction:
        """Return the prediction with the companions that are measured."""
        return self.only([one.held_out() for one in self.beside])

    def only(self, beside: Sequence[Beside | None]) -> Prediction:
        """Return the prediction with these companions."""
        return replace(self, beside=tuple(one for one in beside if one is not None)) if self.beside else self

    def bind(self, model: nn.Module) -> None:
        """Bind the companions."""
        for one in self.beside:
            one.bind(model)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets: tokens with a label, and those of each companion."""
        tokens = float((batch["labels"] != IGNORED).sum())
        return {"tokens": tokens, **{one.part: one.count(batch) for one in self.beside}}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss; `nll` and, without gradients, `correct` are among its figures."""
        return self.of(model, model(**inputs_of(batch, self.beside), compute_logits=False), batch)

    def of(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the loss of what a model gave."""
        assert output.last_hidden_state is not None, "every pass gives it"
        features, targets = chosen(output.last_hidden_state, batch["labels"])
        sums = token_sums(model, features, targets, smoothing=self.label_smoothing)
        count = float(len(targets))
        figures = {"nll": Part(sums.nll, count), "correct": Part(sums.correct, count)}
        loss = Loss({"tokens": Part(sums.loss, count)}, figures)
        for one in self.beside:
            found = one(model, output, batch)
            loss.parts |= found.parts
            loss.figures |= found.figures
        return loss


def inputs_of(batch: Batch, beside: tuple[Beside, ...]) -> dict[str, Any]:
    """Return what the model is called with: the batch without targets, and what the companions ask for."""
    targets = {"labels", *(name for one in beside for name in one.targets)}
    asked = {name: value for one in beside for name, value in one.asks.items()}
    return {name: value for name, value in batch.items() if name not in targets} | asked


@dataclass(frozen=True, slots=True)
class NextSentence(Beside):
    """Does the second piece of a row follow the first? `next_sentence` [B], 1 = it does not.

    Source: Devlin et al. 2019, §3.1 task 2, arXiv:1810.04805. Where the pieces are swapped instead of drawn it is the
    order that is learned (Lan et al. 2020, §3.1, arXiv:1909.11942).
    """

    called: str = "next-sentence accuracy"
    """What a report calls it."""

    @property
    def part(self) -> str:
        """One part."""
        return "sentences"

    @property
    def targets(self) -> tuple[str, ...]:
        """The answers."""
        return ("next_sentence",)

    @property
    def figures(self) -> Mapping[str, str]:
        """How often the answer is right."""
        return {"sentences_correct": self.called}

    def count(self, batch: Batch) -> float:
        """Number of rows."""
        return float(len(batch["next_sentence"]))

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many answers are right."""
        head = pretraining_head(model)
        logits = head.sentence(head.dropout(output.pooler_output)).float()
        wrong = F.cross_entropy(logits, batch["next_sentence"], reduction="sum")
        right = (logits.argmax(dim=-1) == batch["next_sentence"]).sum().float()
        return Loss({self.part: Part(wrong, float(len(logits)))},
                    {"sentences_correct": Part(right, float(len(logits)))})


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
        case PretrainingHead() | DoubleHead() | LengthHead() as head:
            return head.language
        case LanguageHead() as head:
            return head
        case _:
            raise InputError("the model has no language head to learn tokens with", where="model.head",
                             remedy="use kind: language")


def pretraining_head(model: nn.Module) -> PretrainingHead:
    """Return the head with a next-sentence classifier. Raises `InputError` when the model has none."""
    head = getattr(model, "head", None)
    if not isinstance(head, PretrainingHead):
        raise InputError("the model has no classifier for next-sentence prediction", where="model.head",
                         remedy="use kind: pretraining")
    return head
