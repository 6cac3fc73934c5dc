"""Causal language modelling: the next token, with a memory carried from step to step, and auxiliary predictions for
deep stacks (tokens further ahead, intermediate layers), which are used in training only.

Letters: B batch, L length, M memory, D dim, V vocab, N targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from saucier.config import sees_prefix
from saucier.objectives import config as c
from saucier.objectives.base import (
    IGNORED,
    Batch,
    CarriedBuffer,
    Corruption,
    Loss,
    LossPart,
    Objective,
    ObjectiveInputs,
    RowCorruption,
    WrappedObjective,
    to_int_tensor,
)
from saucier.objectives.batch_layout import add_row_inputs
from saucier.objectives.cross_entropy import compute_cross_entropy
from saucier.objectives.prediction import AuxiliaryLoss, Prediction, select_model_inputs, select_targets
from saucier.parts.output import Output
from saucier.text.rows.batch import Rows


@dataclass(frozen=True, slots=True)
class CausalCorruption(RowCorruption):
    """Each token's label is the next token of its document. Source: Radford et al. 2018 (GPT), §3.1."""

    positions: c.EveryPosition | c.LastPosition = field(default_factory=c.EveryPosition)
    """Where the next token is learned."""
    prefix: bool = False
    """Whether the decoder needs a prefix length, which is 0: no first tokens are seen by all."""

    @property
    def overlap(self) -> int:
        """The last token of a row is only a label there, and an input in the next."""
        return 1

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Shift the rows by one. Shapes: rows [B, L+1] -> input_ids, labels [B, L]."""
        follows = rows.mask[:, 1:] & (rows.documents[:, 1:] == rows.documents[:, :-1])
        predicted = np.arange(1, rows.tokens.shape[1]) >= rows.context[:, None]
        if isinstance(self.positions, c.LastPosition):
            predicted = predicted & (np.arange(1, rows.tokens.shape[1]) == rows.mask.sum(axis=1, keepdims=True) - 1)
        labels = np.where(follows & predicted, rows.tokens[:, 1:], IGNORED)
        kept = Rows(rows.tokens[:, :-1], rows.documents[:, :-1], rows.positions[:, :-1], rows.segments[:, :-1],
                    rows.context, rows.sentence_label, rows.row, rows.item)
        batch = add_row_inputs(kept, {"input_ids": to_int_tensor(kept.tokens), "labels": to_int_tensor(labels)})
        return batch | ({"prefix_length": to_int_tensor(np.zeros(len(rows)))} if self.prefix else {})


ROWS, CONTINUES = "rows", "continues"
"""What a batch holds in addition to the model's inputs: each row's number in the batch, and whether it goes on."""


@dataclass(frozen=True, slots=True)
class ContinuedRowsCorruption:
    """Rows that go on where those of the step before ended; a memory goes over the borders of documents."""

    inner: Corruption[Rows]
    """What is done to each row."""

    @property
    def overlap(self) -> int:
        """That of the inner one."""
        return self.inner.overlap

    def row_length(self, length: int) -> int:
        """Likewise."""
        return self.inner.row_length(length)

    def __call__(self, rows: Rows, *, seed: int, step: int) -> Batch:
        """Say of each row its number and whether it goes on. Shapes: adds rows, continues [B]."""
        batch = self.inner(rows, seed=seed, step=step)
        goes_on = np.zeros(len(rows)) if rows.continues is None else rows.continues
        plain = {name: value for name, value in batch.items() if name not in ("documents", "places")}
        return plain | {ROWS: to_int_tensor(rows.row), CONTINUES: to_int_tensor(goes_on)}


@dataclass(frozen=True, slots=True)
class PredictionWithMemory(WrappedObjective):
    """A prediction that reads, at every step, what the model remembers of the row's text so far.

    The memory is what the weights of earlier steps made of the text, so it cannot be computed again: it is a part of
    the run's state, and saved with it. Source: Dai et al. 2019, §3.2, arXiv:1901.02860, and code release.
    """

    inner: Prediction
    carried: CarriedBuffer = field(default_factory=CarriedBuffer)
    """[M, D] of each row for each block, by its number."""

    def at(self, step: int) -> PredictionWithMemory:
        """Return what is learned at a step; the memory is the same one."""
        return replace(self, inner=self.inner.at(step))

    def held_out(self) -> PredictionWithMemory:
        """Return what is measured, with a memory of its own."""
        return PredictionWithMemory(self.inner.held_out())

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Read with the memory, predict, and remember."""
        rows = batch[ROWS].tolist()
        known = self.carried.get(rows) if bool(batch[CONTINUES].all()) else {}
        blocks = [known[str(number)].transpose(0, 1).contiguous() for number in range(len(known))]
        plain = {name: value for name, value in batch.items() if name not in (ROWS, CONTINUES)}
        output = model(**select_model_inputs(plain, self.inner.auxiliary), mems=blocks or None, use_mems=True,
                       compute_logits=False)
        self.carried.put(rows, {str(number): block.transpose(0, 1) for number, block in enumerate(output.mems)})
        return self.inner.of(model, output, plain)


DEVIATION = 0.02
"""Standard deviation of a new classifier's weights."""


class Classifiers(nn.Module):
    """Output matrices of their own, one for each (layer, how many tokens ahead). Shapes: [V, D] each."""

    def __init__(self, places: tuple[tuple[int, int], ...], vocab: int, dim: int, seed: int) -> None:
        """Draw a matrix for each place."""
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterDict({
            name_classifier(place): nn.Parameter(torch.empty(vocab, dim).normal_(0.0, DEVIATION, generator=random))
            for place in places})

    def losses(self, place: tuple[int, int], hidden: Tensor, labels: Tensor) -> Tensor:
        """Sum the loss of one classifier. Shapes: hidden [B, L, D], labels [B, L]."""
        features, targets = select_targets(hidden, labels)
        return compute_cross_entropy(features, self.weights[name_classifier(place)], None, targets).loss


def name_classifier(place: tuple[int, int]) -> str:
    """Name the classifier of a layer and a number of tokens ahead."""
    return f"layer_{place[0]}_ahead_{place[1]}"


def shift_labels_ahead(labels: Tensor, count: int) -> Tensor:
    """Return the labels `count` tokens further ahead; none after the end of a row or of a document.

    Shapes: labels [B, L] -> [B, L].
    """
    for _ in range(count):
        moved = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        labels = torch.where(labels == IGNORED, IGNORED, moved)
    return labels


@dataclass(frozen=True, slots=True)
class DeepPrediction(AuxiliaryLoss):
    """Layers inside the stack predict too, and every layer also predicts tokens further ahead.

    Source: Al-Rfou et al. 2019, "Character-Level Language Modeling with Deeper Self-Attention", §3, arXiv:1808.04444:
    layer l of n rests when l/2n of the training is over; a token that is further ahead counts half.
    """

    config: c.Deeper
    layers: int
    """Blocks of the stack."""
    vocab: int
    dim: int
    steps: int
    seed: int = 0
    active_layers: tuple[int, ...] | None = None
    """The layers that predict now, the last one being `layers`; None: all."""
    own: dict[str, nn.Module] = field(default_factory=dict)

    part: ClassVar[str] = "deeper"
    """One part, over all layers and distances."""

    @property
    def requested_outputs(self) -> Mapping[str, bool]:
        """The layers' outputs, while one of them predicts."""
        return {"output_hidden_states": True} if self.inside else {}

    @property
    def inside(self) -> tuple[int, ...]:
        """The layers below the last one that predict now."""
        every = tuple(range(1, self.layers)) if self.config.intermediate is not None else ()
        return every if self.active_layers is None else self.active_layers

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Every (layer, tokens ahead) that predicts now; the model's own head does (last, 0)."""
        further = range(1, self.config.further + 1)
        return (*((layer, count) for layer in self.inside for count in (0, *further)),
                *((self.layers, count) for count in further))

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The classifiers, once they are bound to a model."""
        return self.own

    def bind(self, model: nn.Module) -> None:
        """Make the classifiers of all layers."""
        made = Classifiers(replace(self, active_layers=None).places, self.vocab, self.dim, self.seed)
        self.own["deeper"] = made.to(next(model.parameters()).device)

    def at(self, step: int) -> DeepPrediction | None:
        """Let the lower layers rest, one after the other."""
        until = self.config.intermediate
        active_layers = tuple(layer for layer in self.inside if until
                              and step < until * layer / self.layers * self.steps)
        found = replace(self, active_layers=active_layers)
        return found if found.places else None

    def held_out(self) -> None:
        """Held-out text is measured without it."""
        return

    def count(self, batch: Batch) -> float:
        """Number of next tokens."""
        return float((batch["labels"] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the sum over all classifiers that predict now."""
        classifiers = self.own["deeper"]
        assert isinstance(classifiers, Classifiers), "bind() made it"
        hidden = dict(enumerate(output.hidden_states or ())) | {self.layers: output.last_hidden_state}
        total = torch.zeros((), device=batch["labels"].device)
        for layer, count in self.places:
            states = hidden[layer]
            assert states is not None, "output_hidden_states is set"
            share = self.config.weight if count else 1.0
            total = total + share * classifiers.losses((layer, count), states,
                                                       shift_labels_ahead(batch["labels"], count))
        return Loss({self.part: LossPart(total, self.count(batch))})


def build_causal(config: c.Causal, given: ObjectiveInputs) -> tuple[Corruption[Any], Objective]:
    """Build both halves of next tokens."""
    body = given.body
    auxiliary: tuple[AuxiliaryLoss, ...] = ()
    corruption = CausalCorruption(config.positions, prefix=body is not None and sees_prefix(body.decoder))
    if config.deeper:
        assert body is not None and body.decoder is not None, "find_mismatches refuses other bodies"
        auxiliary = (DeepPrediction(config.deeper, len(body.decoder.blocks()), body.output_embed.vocab, body.width,
                                    given.steps, given.seed),)
    learned = Prediction(config.label_smoothing, auxiliary)
    if isinstance(config.rows, c.ConsecutiveRows):
        return ContinuedRowsCorruption(corruption), PredictionWithMemory(learned)
    return corruption, learned
