"""Objectives of models that turn texts into vectors: near where texts belong together, far where they do not.

A batch holds groups of texts: ids [B, G, L], with G = 2 (a text and its pair) or 3 (and a wrong one).
Letters: B groups, G texts of a group, L length, E width of a vector.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier.objectives.base import Batch, Loss, Part
from saucier.objectives.labelling import Labels, read_whole


class Groups(Labels):
    """A loss over the vectors of groups of texts."""

    __slots__ = ()

    def count(self, batch: Batch) -> dict[str, float]:
        """Number of groups."""
        return {"labels": float(len(batch["input_ids"]))}

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        """Return the summed loss."""
        losses = self.losses(group_vectors(model, batch), batch)
        return Loss({"labels": Part(losses.sum(), float(len(losses)))})

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
        wanted = torch.arange(len(vectors), device=vectors.device)
        return F.cross_entropy(scores.masked_fill(twins(batch["input_ids"]), float("-inf")), wanted, reduction="none")


@dataclass(frozen=True, slots=True)
class Cosine(Groups):
    """The cosine of two texts must be their score: squared error. Source: Reimers and Gurevych 2019, §3."""

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """`labels` [B], scores between 0 and 1."""
        return (cosines(vectors)[:, 0] - batch["labels"].to(vectors.dtype)) ** 2


@dataclass(frozen=True, slots=True)
class Contrastive(Groups):
    """Texts that belong together are pulled together, others pushed apart up to a margin; distance = 1 - cosine.

    Source: Hadsell et al. 2006, "Dimensionality Reduction by Learning an Invariant Mapping", eq 4.
    """

    margin: float

    def losses(self, vectors: Tensor, batch: Batch) -> Tensor:
        """`labels` [B], 1 = they belong together."""
        distance = 1 - cosines(vectors)[:, 0]
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


def group_vectors(model: nn.Module, batch: Batch) -> Tensor:
    """Return the vectors of all texts, of length one. Shapes: ids [B, G, L] -> [B, G, E]."""
    shape = batch["input_ids"].shape
    flat = {name: value.flatten(0, 1) for name, value in batch.items() if value.shape == shape}
    vectors: Tensor = model(**read_whole(model, flat)).embeddings
    return F.normalize(vectors.float(), dim=-1).view(*shape[:2], -1)


def cosines(vectors: Tensor) -> Tensor:
    """Return the cosines of the first text with the others. Shapes: [B, G, E] -> [B, G - 1]."""
    return (vectors[:, :1] * vectors[:, 1:]).sum(-1)


def twins(ids: Tensor) -> Tensor:
    """Say which candidates are spelled like a text's own pair, without being it. Shapes: [B, G, L] -> [B, B*(G-1)]."""
    candidates = ids[:, 1:].transpose(0, 1).flatten(0, 1)
    same = (ids[:, 1, None] == candidates[None]).all(-1)
    same[:, :len(ids)] &= ~torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    return same
