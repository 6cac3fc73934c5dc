"""Retrieved passages inside the objective: a passage z that nobody names, and the chance of an answer over all found.

p(z | x) is the softmax, over the passages found, of inner products of the question's vector with theirs; a reader
gives p(y | x, z); what is learned is the logarithm of the sum over z. The gradient reaches the reader and the encoder
of questions; the passages' own vectors stay (`Retriever`), or are made again (`live_passages.LiveRetriever`).
Letters: B questions, K passages of each, T target tokens, L length, E width of a vector, N rows of targets, D dim.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from saucier.generation.feeds import join_encoded
from saucier.model import Transformer
from saucier.objectives.answer_losses import give_token_logits
from saucier.objectives.base import IGNORED, MASK_OF_INPUT, Batch, Loss, LossPart, Objective
from saucier.objectives.cross_entropy import count_chunk_rows
from saucier.objectives.teacher_losses import inner_products, precise

QUESTION = "question."
"""Begins the names of what the retriever reads of a question, in a batch."""
RETRIEVER = "retriever"
"""The name of the module that gives questions vectors, and of its folder next to the reader's."""


class Passages(Protocol):
    """Passages with vectors that do not change, given by whoever has the index."""

    def find(self, questions: Tensor, count: int) -> Tensor:
        """Return the places of those with the largest inner products. Shapes: questions [B, E] -> [B, K]."""

    def vectors(self, places: Tensor) -> Tensor:
        """Return the vectors of some. Shapes: places [B, K] -> [B, K, E]."""

    def join(self, batch: Batch, places: Tensor) -> Joined:
        """Put each question next to each of its passages, as a reader reads them. Shapes: places [B, K]."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Questions next to their passages."""

    inputs: Batch
    """What a reader reads: [B * K, L]."""
    starts: Tensor
    """[B, K], the first token of each passage."""
    ends: Tensor
    """[B, K], the first token after it, which may be cut."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a retriever found for each question, the nearest first."""

    places: Tensor
    """[B, K]."""
    scores: Tensor
    """[B, K], inner products times the scale, with the gradient of the retriever."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Sums over the questions of what a retriever measures of itself, by the names of `Retriever.figures`."""

    @property
    def prior(self) -> Tensor:
        """[B, K], log p(z | x) among those found."""
        return self.scores.log_softmax(-1)

    def first(self, count: int) -> Found:
        """Return the nearest ones alone."""
        return Found(self.places[:, :count], self.scores[:, :count])


@dataclass(frozen=True, slots=True)
class Retriever:
    """An encoder of questions, and the passages in which it searches."""

    model: Transformer
    passages: Passages
    count: int
    """K."""
    scale: float = 1.0
    """Factor on the inner products; 1 in the source."""
    rate: float = 1.0
    """Share of the learning rate that the encoder learns at."""
    start: dict[str, Tensor] = field(default_factory=dict, compare=False)
    """The weights that learning begins with."""

    @property
    def figures(self) -> Mapping[str, str]:
        """What it measures of itself, and what a report calls each."""
        return {}

    def begin_step(self, step: int) -> None:
        """Make ready for a step (from 0), before its batches are read."""

    def finish_step(self, step: int) -> None:
        """Take note of the update of a step (from 0)."""

    def find(self, batch: Batch, count: int | None = None) -> Found:
        """Find passages for the questions of a batch, K of each or another number, at most all.

        Source: Lewis et al. 2020, §2.2, arXiv:2005.11401 (eq 83).
        """
        inputs = {name.removeprefix(QUESTION): value for name, value in batch.items() if name.startswith(QUESTION)}
        vectors = precise(self.model(**inputs).embeddings)
        places = self.passages.find(vectors.detach(), count or self.count).to(vectors.device)
        near = inner_products(vectors[:, None], self.passages.vectors(places).to(vectors)).squeeze(1)
        return Found(places, self.scale * near)

    def read(self, batch: Batch, found: Found) -> Joined:
        """Return what the reader reads of a batch: its question with each passage."""
        joined, device = self.passages.join(batch, found.places), found.places.device
        return Joined({name: value.to(device) for name, value in joined.inputs.items()}, joined.starts.to(device),
                      joined.ends.to(device))

    def reset(self, device: torch.device) -> None:
        """Give the encoder the weights that it began with, and put it where the reader is."""
        if not self.start:
            self.start.update({name: value.clone() for name, value in self.model.state_dict().items()})
        self.model.load_state_dict(self.start)
        self.model.to(device)


class Marginal(ABC):
    """How the chances of an answer's tokens, passage by passage, become that of the answer."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, prior: Tensor, logs: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(y | x) and how likely each passage is behind the answer.

        Shapes: prior [B, K], logs [B, K, T] (log p of each target; any number where there is none), real [B, T] (True
        at targets) -> [B], [B, K].
        """


class SequenceMarginal(Marginal):
    """One passage is behind the whole answer: Σ_z p(z | x) Π_i p(y_i | x, z, y_1:i-1), and p(z | x, y).

    Source: Lewis et al. 2020, §2.1 (eq 81).
    """

    def __call__(self, prior: Tensor, logs: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The posterior is by Bayes' rule."""
        joint = prior + logs.masked_fill(~real[:, None], 0.0).sum(-1)
        return joint.logsumexp(-1), joint.softmax(-1)


class TokenMarginal(Marginal):
    """Each token may have another passage: Π_i Σ_z p(z | x) p(y_i | x, z, y_1:i-1).

    Source: Lewis et al. 2020, §2.1 (eq 82).
    """

    def __call__(self, prior: Tensor, logs: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The posterior is the mean over tokens of p(z_i | x, y_1:i)."""
        joint = prior[..., None] + logs
        chance = joint.logsumexp(1).masked_fill(~real, 0.0)
        behind = joint.softmax(1).masked_fill(~real[:, None], 0.0).sum(-1)
        return chance.sum(-1), behind / real.sum(-1, keepdim=True).clamp(min=1)


@dataclass(frozen=True, slots=True)
class RetrieverObjective(Objective):
    """An objective whose retriever learns with the reader, at a rate of its own."""

    retriever: Retriever

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The encoder of questions."""
        return {RETRIEVER: self.retriever.model}

    @property
    def module_rates(self) -> Mapping[str, float]:
        """That of the encoder of questions."""
        return {RETRIEVER: self.retriever.rate}

    def bind(self, model: nn.Module) -> None:
        """Begin with the retriever's own weights."""
        self.retriever.reset(next(model.parameters()).device)


@dataclass(frozen=True, slots=True)
class LatentPassages(RetrieverObjective):
    """The tokens of a text that is written from retrieved passages (RAG), or hidden in it (REALM), over all of these.

    The batch: `input_ids` [B, L], the question as `Passages.join` puts it next to a passage; `question.input_ids` as
    the retriever reads it; `labels` [B, T], and `decoder_input_ids` [B, T] where a decoder writes. Without these the
    labels are of the first T places of a reader's row. Reader and retriever learn together.
    Source: Lewis et al. 2020, §2.4, arXiv:2005.11401; Guu et al. 2020, §3.1, arXiv:2002.08909 (eq 73, 76).
    """

    marginal: Marginal

    @property
    def figures(self) -> Mapping[str, str]:
        """How sure the retriever is, what the answer tells of the passage, whether all questions find the same."""
        return {"likeliest": "chance of the likeliest passage, before the answer is read",
                "behind": "chance of the likeliest passage, after it",
                "different": "different first passages, over the questions of a batch", **self.retriever.figures}

    def at(self, step: int) -> LatentPassages:
        """The same, with an index that is the one of that step."""
        self.retriever.begin_step(step)
        return self

    def finish_update(self, model: nn.Module, step: int) -> None:
        """Tell the retriever, which may want its index made again."""
        self.retriever.finish_step(step)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of target tokens."""
        return {"tokens": float((batch["labels"] != IGNORED).sum())}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed negative logarithm of the marginal likelihood."""
        self.retriever.model.train(model.training)
        found = self.retriever.find(batch)
        logs = score_targets(model, self.retriever.read(batch, found).inputs, batch)
        real = batch["labels"] != IGNORED
        chance, behind = self.marginal(found.prior, logs, real)
        loss, count, rows = -chance.sum(), float(real.sum()), float(len(chance))
        return Loss({"tokens": LossPart(loss, count)}, {
            "nll": LossPart(loss.detach(), count),
            "likeliest": LossPart(found.prior.detach().exp().amax(-1).sum(), rows),
            "behind": LossPart(behind.detach().amax(-1).sum(), rows),
            "different": LossPart(found.prior.new_tensor(float(len(found.places[:, 0].unique()))), rows),
            **{name: LossPart(chance.new_tensor(value), rows) for name, value in found.figures.items()}})


@dataclass(frozen=True, slots=True)
class FusedPassages(Objective):
    """The tokens of a text that is written from all retrieved passages at once (fusion-in-decoder).

    The batch: as of `LatentPassages`. No passage is latent, so that nothing tells the retriever which is better: it
    stays as it is. Source: Izacard and Grave 2021, §3, arXiv:2007.01282.
    """

    retriever: Retriever

    figures: ClassVar[Mapping[str, str]] = {"different": "different first passages, over the questions of a batch"}
    """Whether all questions find the same."""

    def bind(self, model: nn.Module) -> None:
        """Put the retriever where the model is."""
        self.retriever.reset(next(model.parameters()).device)

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of target tokens."""
        return {"tokens": float((batch["labels"] != IGNORED).sum())}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed negative logarithm of the likelihood."""
        self.retriever.model.eval()
        with torch.no_grad():
            found = self.retriever.find(batch)
        logs = score_joined_targets(model, self.retriever.read(batch, found).inputs, batch)
        loss, count = -logs.sum(), self.count(batch)["tokens"]
        first = found.scores.new_tensor(float(len(found.places[:, 0].unique())))
        return Loss({"tokens": LossPart(loss, count)}, {"nll": LossPart(loss.detach(), count),
                                                        "different": LossPart(first, float(len(found.places)))})


def score_targets(model: nn.Module, inputs: Batch, batch: Batch) -> Tensor:
    """Return log p(y_i | x, z, y_1:i-1) of the targets of each question, under each of its passages.

    Where the reader is an encoder alone, these are hidden tokens: p(y_j | x, z), at the same places of each row (eq 76
    and 77). Shapes: inputs [B * K, L]; batch: `labels` [B, T], maybe `decoder_input_ids` [B, T] -> [B, K, T], 0 where
    there is no target.
    """
    copies = len(inputs["input_ids"]) // len(batch["labels"])
    labels = batch["labels"].repeat_interleave(copies, 0)
    given = {name: value.repeat_interleave(copies, 0) for name, value in decoder_inputs(batch).items()}
    hidden = model(**inputs, **given, compute_logits=False).last_hidden_state[:, :labels.shape[1]]
    found: Tensor = score_labels(model, hidden, labels).unflatten(0, (-1, copies))
    return found


def score_joined_targets(model: nn.Module, inputs: Batch, batch: Batch) -> Tensor:
    """Return log p(y_i | x, z_1 ... z_K, y_1:i-1): each passage is read alone, and all of them are attended to at once.

    Shapes: inputs [B * K, L]; batch: `decoder_input_ids`, `labels` [B, T] -> [B, T], 0 where there is no target.
    Source: Izacard and Grave 2021 (fusion-in-decoder), §3, arXiv:2007.01282.
    """
    encoded, mask = join_encoded(model, inputs, batch["decoder_input_ids"][:, :1])
    hidden = model(None, mask, encoder_output=encoded, **decoder_inputs(batch), compute_logits=False).last_hidden_state
    return score_labels(model, hidden, batch["labels"])


def decoder_inputs(batch: Batch) -> Batch:
    """Return what a decoder reads of a batch."""
    name = "decoder_input_ids"
    return {one: batch[one] for one in (name, MASK_OF_INPUT[name]) if one in batch}


def score_labels(model: nn.Module, hidden: Tensor, labels: Tensor) -> Tensor:
    """Return the logarithm of each label's chance, 0 where there is none. Shapes: [B, T, D], [B, T] -> [B, T]."""
    kept = (labels != IGNORED).flatten().nonzero()[:, 0]
    found = score_tokens(model, hidden.flatten(0, 1).index_select(0, kept), labels.flatten().index_select(0, kept))
    return found.new_zeros(labels.numel()).index_copy(0, kept, found).view_as(labels)


def score_tokens(model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """Return the logarithm of each target's chance; the logits of all targets never exist at once.

    Shapes: features [N, D], targets [N] -> [N], float32 or wider.
    """
    def score(part: Tensor, expected: Tensor) -> Tensor:
        logs = precise(give_token_logits(model, part)).log_softmax(-1)
        return logs.gather(-1, expected[:, None])[:, 0]

    assert isinstance(model, Transformer), "a head that gives tokens is one of ours"
    rows = count_chunk_rows(model.config.output_embed.vocab, 4)
    pieces = list(zip(features.split(rows), targets.split(rows), strict=True))
    if len(pieces) < 2 or not torch.is_grad_enabled():
        return torch.cat([score(*piece) for piece in pieces])
    return torch.cat([checkpoint(score, *piece, use_reentrant=False) for piece in pieces])
