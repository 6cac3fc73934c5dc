"""Token prediction: cross-entropy at labelled positions, and auxiliary losses of the same forward pass.

The head and the cross-entropy run on labelled positions only. Letters: B batch, L length, D dim, V vocab, N
targets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as architecture
from saucier.errors import InputError
from saucier.objectives.base import IGNORED, Batch, Loss, LossPart, Objective
from saucier.objectives.cross_entropy import LossSums, compute_cross_entropy, count_chunk_rows
from saucier.objectives.labels import LogitObjective, get_logits, run_model
from saucier.parts.adaptive import AdaptiveHead
from saucier.parts.heads import DoubleHead, LanguageHead, LengthHead, PretrainingHead
from saucier.parts.output import Output


class AuxiliaryLoss(ABC):
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
    def requested_outputs(self) -> Mapping[str, bool]:
        """What the model must return as well, such as `output_hidden_states`."""
        return {}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Modules of its own that are trained with the model."""
        return {}

    def at(self, step: int) -> AuxiliaryLoss | None:
        """Return what it is at a step of the training; None when it rests."""
        return self

    def held_out(self) -> AuxiliaryLoss | None:
        """Return what is measured of it on held-out text; None where it is there for training alone."""
        return self

    def bind(self, model: nn.Module) -> None:  # noqa: B027 - most auxiliary losses have none
        """Make its modules, on the model's device."""

    @abstractmethod
    def count(self, batch: Batch) -> float:
        """Number of its targets."""

    @abstractmethod
    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return its part of the loss, and its figures."""


@dataclass(frozen=True, slots=True)
class Prediction(Objective):
    """Cross-entropy of `labels` [B, L], and what is learned in addition.

    Source: Devlin et al. 2019, §3.1, arXiv:1810.04805.
    """

    label_smoothing: float = 0.0
    auxiliary: tuple[AuxiliaryLoss, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Tokens, and a part for each auxiliary loss."""
        return ("tokens", *(one.part for one in self.auxiliary))

    @property
    def figures(self) -> Mapping[str, str]:
        """Those of the auxiliary losses."""
        return {name: words for one in self.auxiliary for name, words in one.figures.items()}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Those of the auxiliary losses."""
        return {name: module for one in self.auxiliary for name, module in one.modules.items()}

    def at(self, step: int) -> Prediction:
        """Return the prediction with the auxiliary losses that are learned at a step."""
        return self.only([one.at(step) for one in self.auxiliary])

    def held_out(self) -> Prediction:
        """Return the prediction with the auxiliary losses that are measured."""
        return self.only([one.held_out() for one in self.auxiliary])

    def only(self, auxiliary: Sequence[AuxiliaryLoss | None]) -> Prediction:
        """Return the prediction with these auxiliary losses."""
        return replace(self, auxiliary=tuple(one for one in auxiliary if one is not None)) if self.auxiliary else self

    def bind(self, model: nn.Module) -> None:
        """Bind the auxiliary losses."""
        for one in self.auxiliary:
            one.bind(model)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets: tokens with a label, and those of each auxiliary loss."""
        tokens = float((batch["labels"] != IGNORED).sum())
        return {"tokens": tokens, **{one.part: one.count(batch) for one in self.auxiliary}}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss; `nll` and, without gradients, `correct` are among its figures."""
        return self.of(model, model(**select_model_inputs(batch, self.auxiliary), compute_logits=False), batch)

    def of(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the loss of what a model gave."""
        assert output.last_hidden_state is not None, "every pass gives it"
        features, targets = select_targets(output.last_hidden_state, batch["labels"])
        sums = sum_token_losses(model, features, targets, smoothing=self.label_smoothing)
        count = float(len(targets))
        figures = {"nll": LossPart(sums.nll, count), "correct": LossPart(sums.correct, count)}
        loss = Loss({"tokens": LossPart(sums.loss, count)}, figures)
        for one in self.auxiliary:
            found = one(model, output, batch)
            loss.parts |= found.parts
            loss.figures |= found.figures
        return loss


def select_model_inputs(batch: Batch, auxiliary: tuple[AuxiliaryLoss, ...]) -> dict[str, Any]:
    """Return what the model is called with: the batch without targets, and what the auxiliary losses request."""
    targets = {"labels", *(name for one in auxiliary for name in one.targets)}
    requested = {name: value for one in auxiliary for name, value in one.requested_outputs.items()}
    return {name: value for name, value in batch.items() if name not in targets} | requested


def select_targets(hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Keep the positions that have a label. Shapes: [B, L, D], [B, L] -> [N, D], [N]."""
    hidden, labels = hidden.flatten(0, 1), labels.flatten()
    index = (labels != IGNORED).nonzero()[:, 0]
    if len(index) == len(labels):
        return hidden, labels
    return hidden.index_select(0, index), labels.index_select(0, index)


def sum_token_losses(model: nn.Module, features: Tensor, targets: Tensor, *, smoothing: float) -> LossSums:
    """Sum the losses of targets by the model's head. Shapes: features [N, D], targets [N].

    Raises `InputError` for smoothing over clusters, and for a model whose head gives no tokens.
    """
    if is_custom(model):
        return measure_token_logits(model.head(features), targets, smoothing)  # type: ignore[operator]
    if not isinstance(adaptive := getattr(model, "head", None), AdaptiveHead):
        head = get_language_head(model)
        return compute_cross_entropy(head.prepare(features), head.matrix, head.bias, targets, smoothing=smoothing)
    if smoothing:
        raise InputError("an adaptive head scores only the clusters of its targets, and smoothing needs all tokens",
                         where="objective.label_smoothing", remedy="use 0")
    loss, right = adaptive.losses(features, targets).sum(), torch.zeros((), device=features.device)
    if not torch.is_grad_enabled():
        rows = count_chunk_rows(adaptive.vocab, features.element_size())
        pieces = zip(features.split(rows), targets.split(rows), strict=True)
        right = sum(((adaptive(part).argmax(-1) == expected).sum() for part, expected in pieces), right)
    return LossSums(loss, loss.detach(), right)


def is_custom(model: nn.Module) -> bool:
    """Say whether the token logits of a model are those of a head from outside."""
    config = getattr(model, "config", None)
    return isinstance(config, architecture.Transformer) and isinstance(config.head, architecture.CustomHead) \
        and config.head.token_logits


def measure_token_logits(logits: Tensor, targets: Tensor, smoothing: float) -> LossSums:
    """Sum the losses of targets by logits that are there. Shapes: logits [N, V], targets [N]."""
    logits = logits.float()
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    with torch.no_grad():
        plain = F.cross_entropy(logits, targets, reduction="sum") if smoothing else loss.detach()
        right = (logits.argmax(-1) == targets).sum().float()
    return LossSums(loss, plain, right)


def get_language_head(model: nn.Module) -> LanguageHead:
    """Return the head that speaks tokens. Raises `InputError` when the model has none."""
    match getattr(model, "head", None):
        case PretrainingHead() | DoubleHead() | LengthHead() as head:
            return head.language
        case LanguageHead() as head:
            return head
        case _:
            raise InputError("the model has no language head to learn tokens with", where="model.head",
                             remedy="use kind: language")


@dataclass(frozen=True, slots=True)
class SecondTokens(AuxiliaryLoss):
    """Cross-entropy of further labels [B, L]: L = L_first + λ · L_second, each the mean over its own targets.

    Source: Hsieh et al. 2023, §3.2, eq 4, arXiv:2305.02301.
    """

    labels: str
    """What these labels are called in the batch; -100 is no target."""
    report_name: str
    """The name of the part, and of its figure in reports."""
    weight: float
    """λ."""

    @property
    def part(self) -> str:
        """Their own."""
        return self.report_name

    @property
    def targets(self) -> tuple[str, ...]:
        """The further labels."""
        return (self.labels,)

    @property
    def figures(self) -> Mapping[str, str]:
        """Their loss without the weight."""
        return {f"{self.report_name}_nll": f"loss of the {self.report_name}"}

    def count(self, batch: Batch) -> float:
        """Number of tokens with such a label; a batch may have none."""
        return float((batch[self.labels] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the weighted sum."""
        assert output.last_hidden_state is not None, "every stack gives it"
        features, targets = select_targets(output.last_hidden_state, batch[self.labels])
        sums = sum_token_losses(model, features, targets, smoothing=0.0)
        count = float(len(targets))
        return Loss({self.part: LossPart(self.weight * sums.loss, count)},
                    {f"{self.report_name}_nll": LossPart(sums.nll, count)})


TARGETS = ("labels", "mlm_mask", "relevance_score")


@dataclass(frozen=True, slots=True)
class MarginalPrediction(Objective):
    """The chance of a hidden token, summed over the texts that may help to find it.

    The batch holds `input_ids` [B, N, L], `relevance_score` [B, N] and `labels` [B, L]. `mlm_mask` [B, L], 1 at a
    target, may narrow these; each token's chance is marginalized on its own, as in the published code.
    Source: Guu et al. 2020 (REALM), §3.1, eq 1, arXiv:2002.08909.
    """

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of targets."""
        return {"tokens": float(mark_targets(batch).sum())}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        output = model(**{name: value for name, value in batch.items() if name not in TARGETS})
        texts = batch["relevance_score"].shape[1]
        labels, kept = batch["labels"], mark_targets(batch)
        logits = output.logits.float().unflatten(0, (-1, texts))  # [B, N, L, V]
        expected = labels.clamp(min=0)[:, None].expand(-1, texts, -1)
        known = -F.cross_entropy(logits.flatten(0, 2), expected.flatten(), reduction="none").view(expected.shape)
        weighted = known + batch["relevance_score"].float().log_softmax(-1)[..., None]
        chance = weighted.logsumexp(1)
        return Loss({"tokens": LossPart(-chance[kept].sum(), float(kept.sum()))})


def mark_targets(batch: Batch) -> Tensor:
    """Say which positions are targets. Shapes: -> [B, L]."""
    labels, mask = batch["labels"], batch.get("mlm_mask")
    known = labels != IGNORED
    return known if mask is None else known & mask.to(torch.bool)


WORDS = "words"


@dataclass(frozen=True, slots=True)
class AuxiliaryLanguageModelling(Objective):
    """L3 = L2 + weight * L1: the task, and each word of its rows by those before it.

    Words are scored by the token table, as in the paper's eq 2, whatever the family's own language head does. L1 is
    the mean over all words of the batch; in the authors' code that of the rows' means.
    Source: Radford et al. 2018, §3.2, eq 5.
    """

    task: LogitObjective
    weight: float

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of the task, and the words."""
        return (*self.task.parts, WORDS)

    def held_out(self) -> LogitObjective:
        """The task alone is measured."""
        return self.task

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of labels and of words."""
        return self.task.count(batch) | {WORDS: float((shift_to_next_words(batch) != IGNORED).sum())}

    def bind(self, model: nn.Module) -> None:
        """Raise `InputError` for a model whose token table does not fit its vectors."""
        table = get_token_table(model)
        if table.shape[-1] != model.config.dim:
            raise InputError("the token table is not as wide as the vectors, so it cannot score words",
                             where="task.form.auxiliary", remedy="use 0")

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return both summed losses, and the task's figures."""
        output = run_model(model, batch)
        assert output.last_hidden_state is not None, "every model gives it"
        loss = self.task.of(get_logits(output), batch)
        features, targets = select_targets(output.last_hidden_state, shift_to_next_words(batch))
        head = getattr(model, "head", None)
        if isinstance(head, DoubleHead):
            features = head.language.prepare(features)
        sums = compute_cross_entropy(features, get_token_table(model), None, targets)
        loss.parts[WORDS] = LossPart(self.weight * sums.loss, float(len(targets)))
        return loss


def get_token_table(model: nn.Module) -> Tensor:
    """Return the table of token vectors. Shapes: -> [V, D]."""
    table: Tensor = model.embed.tokens.weight  # type: ignore[union-attr, assignment]  # a Transformer has one
    return table


def shift_to_next_words(batch: Batch) -> Tensor:
    """Return the id after each place of each row, -100 where there is none. Shapes: -> [B, L]."""
    ids, real = (batch[name].flatten(0, -2) for name in ("input_ids", "attention_mask"))
    targets = torch.full_like(ids, IGNORED)
    targets[:, :-1] = torch.where(real[:, 1:] > 0, ids[:, 1:], IGNORED)
    return targets
