"""Objectives over vectors of texts that are compared: pairs, triplets, in-batch negatives, a teacher's scores.

Letters: B batch, L length, G texts of a group, E width of a vector, U texts of one pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.config import EmbeddingHead
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.model import Transformer
from saucier.objectives.base import Batch, Loss, LossPart, WholeBatchObjective
from saucier.objectives.labels import LabelObjective, open_prefix_to_whole_text
from saucier.objectives.teacher_losses import inner_products

Normalize = Callable[[Tensor], Tensor]
SIMILARITIES: dict[str, Normalize] = {"cosine": lambda vectors: F.normalize(vectors, dim=-1),
                                      "inner_product": lambda vectors: vectors}
"""What is done to vectors before their inner product, by what that is then called."""
PASSAGES = "passages"
"""What a second encoder is called, among an objective's modules and in the folder of a training."""
MULTIPLIER = 0x5851F42D4C957F2D
"""Of a sequence of numbers modulo 2^64 with the full period. Source: Knuth 1998, §3.3.4, table 1, line 26."""


class Groups(LabelObjective):
    """A loss over the vectors of groups of texts."""

    __slots__ = ()

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of groups."""
        return {"labels": float(len(batch["input_ids"]))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        losses = self.losses(compute_group_vectors(model, batch), self.keys(batch))
        return Loss({"labels": LossPart(losses.sum(), float(len(losses)))})

    def keys(self, batch: Batch) -> Batch:
        """Return what the loss reads next to the vectors, a row for each group."""
        return batch

    @abstractmethod
    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each group. Shapes: vectors [B, G, E] of length one -> [B]."""


@dataclass(frozen=True, slots=True)
class InBatchNegatives(Groups, WholeBatchObjective):
    """Each text must find its own pair among the pairs (and the wrong texts) of the whole batch: softmax of products.

    What may be right too is no negative: texts that are spelled like its own pair, the pairs of an equal text, and,
    where `answers` are known, the pairs of texts with an equal answer. What a batch holds decides what is learned: more
    rows are a harder task. Cut into passes, or over several processes, it is the same loss of the same global batch.
    Source: eq 84; Karpukhin et al. 2020, §3.2, eq 2, arXiv:2004.04906 (inner products); Henderson et al. 2017, §4.4,
    arXiv:1705.00652; van den Oord et al. 2018, eq 4, arXiv:1807.03748.
    """

    scale: float
    """Factor on the products: one over the temperature."""
    similarity: str = "cosine"
    """Name in `SIMILARITIES`."""

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss, all texts read in one pass."""
        vectors = compute_group_vectors(model, batch, SIMILARITIES[self.similarity])
        losses = self.losses(vectors, self.keys(batch))
        return Loss({"labels": LossPart(losses.sum(), float(len(losses)))})

    def keys(self, batch: Batch) -> Batch:
        """Return a number for each text, equal for equal ones, and that of the answer where it is known.

        Shapes: `texts` [B, G], `answers` [B].
        """
        return {"texts": hash_texts(batch)} | {name: batch[name] for name in ("answers",) if name in batch}

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy over [B, B * (G - 1)] candidates: all pairs, then all wrong texts."""
        candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)
        scores = inner_products(self.scale * vectors[:, 0], candidates)
        targets = torch.arange(len(vectors), device=vectors.device)
        return F.cross_entropy(scores.masked_fill(mark_no_negatives(batch), float("-inf")), targets, reduction="none")

    def split(self, micro: Sequence[Batch], size: int) -> list[Batch]:
        """Return the different texts of micro-batches, those of one length together, `size` in a pass.

        The first texts of groups go first, so that no pass pads a question to the length of a passage. `texts` [U] is
        the number of each.
        """
        return [one for side in (0, 1) for one in split_texts(micro, size, side)]

    def represent(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return a vector for each text of a pass. Shapes: ids [U, L] -> [U, E]."""
        inputs = {name: value for name, value in batch.items() if name != "texts"}
        return SIMILARITIES[self.similarity](compute_vectors(model, inputs))

    def assemble(self, vectors: Tensor, passes: Sequence[Batch], keys: Batch) -> Tensor:
        """Put the vectors of all passes in the places of the texts that they are of. Shapes: [U, E] -> [B, G, E]."""
        made = torch.cat([one["texts"] for one in passes])
        wanted = torch.cat([mark_side(keys["texts"][:, :1], 0), mark_side(keys["texts"][:, 1:], 1)], dim=1)
        order = made.argsort()
        return vectors[order[torch.searchsorted(made[order], wanted)]]


COSINE_SCALE = 20.0
"""Factor on cosines before a softmax: what retrievers of sentence-transformers are trained with (code release)."""


def choose_scale(scale: float | None, model: nn.Module) -> float:
    """Return the factor on inner products of a model's vectors: what is said, or 1, or that of cosines."""
    head = model.config.head if isinstance(model, Transformer) else None
    return scale or (COSINE_SCALE if isinstance(head, EmbeddingHead) and head.normalize else 1.0)


@dataclass(frozen=True, slots=True)
class InverseClozeLabels(LabelObjective):
    """Each sentence must find its own passage among those of the batch: softmax of inner products, of any length.

    The batch: ids [B, 2, L], sentence and passage, and `blocks` [B], the number of each passage; where a passage is
    there with another sentence, it is no negative.
    Source: Lee et al. 2019, "Inverse Cloze Task", arXiv:1906.00300 (eq 66, 70).
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
        scale = choose_scale(self.scale, model)
        scores = inner_products(scale * questions, passages)
        targets = torch.arange(len(scores), device=scores.device)
        others = (blocks[:, None] == blocks[None]) & (targets[:, None] != targets[None])
        scores = scores.masked_fill(others, float("-inf"))
        right = (scores.argmax(-1) == targets).sum().float()
        return Loss({"labels": LossPart(F.cross_entropy(scores, targets, reduction="sum"), float(len(scores)))},
                    {"correct": LossPart(right.detach(), float(len(scores)))})


@dataclass(frozen=True, slots=True)
class TwoEncoders(InBatchNegatives):
    """In-batch negatives with an encoder for the first texts, and a second one, which learns too, for all others.

    Source: eq 84; Karpukhin et al. 2020, §3.1, arXiv:2004.04906.
    """

    begins_with: str = ""
    """The folder of the second one."""
    encoders: dict[str, Transformer] = field(default_factory=dict, compare=False)
    """It, once it is there."""

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The second encoder."""
        return self.encoders

    def bind(self, model: nn.Module) -> None:
        """Load the second encoder. Raises `InputError` for a model that gives texts no vectors of the same width."""
        if self.encoders:
            return
        device = next(model.parameters()).device
        second = load(self.begins_with, dtype="float32", device=device).train()
        if not isinstance(second.config.head, EmbeddingHead):
            raise InputError("has no embedding head", where=self.begins_with,
                             remedy="give a folder that gives texts vectors, as task.learns.passage_encoder")
        configs: list[Any] = [model.config, second.config]
        widths = [one.head.widths(one.dim)[-1] for one in configs]
        if widths[0] != widths[1]:
            raise InputError(f"gives {widths[1]} numbers a text, and the model {widths[0]}", where=self.begins_with,
                             remedy="give two encoders of one width")
        self.encoders[PASSAGES] = second

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss, all texts of a side read in one pass."""
        shape, normalize = batch["input_ids"].shape, SIMILARITIES[self.similarity]
        sides = [{name: value[:, side] if value.shape == shape else value for name, value in batch.items()}
                 for side in (slice(0, 1), slice(1, None))]
        vectors = [compute_group_vectors(one, side, normalize)
                   for one, side in zip((model, self.encoders[PASSAGES]), sides, strict=True)]
        losses = self.losses(torch.cat(vectors, dim=1), self.keys(batch))
        return Loss({"labels": LossPart(losses.sum(), float(len(losses)))})

    def represent(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the vectors of a pass, by the encoder of its side. Shapes: ids [U, L] -> [U, E]."""
        encoder = self.encoders[PASSAGES] if int(batch["texts"][0]) & 1 else model
        return InBatchNegatives.represent(self, encoder, batch)


@dataclass(frozen=True, slots=True)
class Cosine(Groups):
    """The cosine of two texts must be their score: squared error. Source: Reimers and Gurevych 2019, §3."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """`labels` [B], scores between 0 and 1."""
        return (compute_cosines(vectors)[:, 0] - batch["labels"].to(vectors.dtype)) ** 2


@dataclass(frozen=True, slots=True)
class CandidateMargins(Groups):
    """The pair must be nearer than each wrong text by as much as a teacher says: squared error of the differences.

    `labels` [B, G - 1] are the teacher's scores of the pair and the wrong texts.
    Source: Hofstätter et al. 2020, §3.2, eq 2, arXiv:2010.02666 (margin-MSE).
    """

    scale: float
    """Factor on the cosines, which are between -1 and 1 where a teacher's scores are not."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """The mean over the wrong texts."""
        ours, theirs = self.scale * compute_cosines(vectors), batch["labels"].to(vectors.dtype)
        gaps = (ours[:, :1] - ours[:, 1:]) - (theirs[:, :1] - theirs[:, 1:])
        return (gaps ** 2).mean(1)


@dataclass(frozen=True, slots=True)
class CandidateDivergence(Groups):
    """The softmax over the pair and the wrong texts must be a teacher's: Kullback-Leibler divergence from it.

    `labels` [B, G - 1] are the teacher's scores. Source: Hinton et al. 2015, §2, arXiv:1503.02531; over candidates Lin
    et al. 2021, §3, arXiv:2010.11386.
    """

    scale: float
    """Factor on the cosines."""
    temperature: float
    """Of the teacher's softmax."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """The sum over the candidates."""
        ours = (self.scale * compute_cosines(vectors)).log_softmax(1)
        theirs = (batch["labels"].to(vectors.dtype) / self.temperature).log_softmax(1)
        return F.kl_div(ours, theirs, reduction="none", log_target=True).sum(1)


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


def compute_group_vectors(model: nn.Module, batch: Batch, normalize: Normalize = SIMILARITIES["cosine"]) -> Tensor:
    """Return the vectors of all texts, of length one unless that is said otherwise. Shapes: [B, G, L] -> [B, G, E]."""
    shape = batch["input_ids"].shape
    flat = {name: value.flatten(0, 1) for name, value in batch.items() if value.shape == shape}
    return normalize(compute_vectors(model, flat)).view(*shape[:2], -1)


def compute_vectors(model: nn.Module, inputs: Batch) -> Tensor:
    """Return the vectors of texts as the model gives them, in float32 or wider. Shapes: [U, L] -> [U, E]."""
    found: Tensor = model(**open_prefix_to_whole_text(model, inputs)).embeddings
    return found.to(torch.promote_types(found.dtype, torch.float32))


def compute_cosines(vectors: Tensor) -> Tensor:
    """Return the cosines of the first text with the others. Shapes: [B, G, E] -> [B, G - 1]."""
    return (vectors[:, :1] * vectors[:, 1:]).sum(-1)


def mark_no_negatives(keys: Mapping[str, Tensor]) -> Tensor:
    """Say which candidates may be right for a text, without being its own pair. Shapes: -> [B, B * (G - 1)]."""
    texts = keys["texts"]
    candidates = texts[:, 1:].T.flatten()
    same = texts[:, 1, None] == candidates[None]
    pairs = same[:, :len(texts)]  # a view
    pairs |= texts[:, 0, None] == texts[None, :, 0]
    if (answers := keys.get("answers")) is not None:
        pairs |= answers[:, None] == answers[None]
    pairs.fill_diagonal_(False)
    return same


def hash_texts(batch: Batch) -> Tensor:
    """Return a number for each text, equal for the same tokens however they are padded. Shapes: [..., L] -> [...].

    Numbers of 64 bits: that two of a million texts share one has a chance below one in ten million.
    """
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    found = torch.zeros_like(ids[..., 0])
    for place in range(ids.shape[-1]):  # each step mixes all bits, so that no two orders of the same tokens agree
        mixed = (found ^ (ids[..., place] + 1)) * MULTIPLIER
        found = torch.where(mask[..., place] > 0, mixed ^ (mixed >> 29), found)
    return found


def mark_side(numbers: Tensor, side: int) -> Tensor:
    """Return numbers of texts whose last bit is the side on which they are. Shapes: the same."""
    return (numbers & -2) | side


def split_texts(micro: Sequence[Batch], size: int, side: int) -> Iterator[Batch]:
    """Yield the different texts of one side, the shortest first, `size` at a time, each pass as long as its longest.

    `side`: 0 for the first texts of the groups, 1 for all others.
    """
    chosen = slice(0, 1) if side == 0 else slice(1, None)
    longest = max(one["input_ids"].shape[-1] for one in micro)
    shape = {name for name, value in micro[0].items() if value.shape == micro[0]["input_ids"].shape}
    whole = {name: torch.cat([F.pad(one[name][:, chosen].flatten(0, 1), (0, longest - one[name].shape[-1]))
                              for one in micro]) for name in shape}
    numbers = mark_side(hash_texts(whole), side)
    order = np.unique(numbers.cpu().numpy(), return_index=True)[1]
    lengths = whole["attention_mask"].sum(-1).cpu().numpy()[order]
    order = order[np.argsort(lengths, kind="stable")]
    for start in range(0, len(order), size):
        places = torch.from_numpy(order[start:start + size]).to(numbers.device)
        room = int(whole["attention_mask"][places].sum(-1).max())
        yield {name: value[places][:, :room] for name, value in whole.items()} | {"texts": numbers[places]}
