"""A retriever that learns on both sides: the index only chooses passages, and p(z | x) is made again of their texts.

So the gradient reaches the vectors of passages too; those of the index are as old as its last version.
Letters: B questions, K passages of each (the last one empty), U different passages of a batch, E width of a vector.
Source: Guu et al. 2020 (REALM), §3.3, arXiv:2002.08909 (eq 72).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from saucier.objectives.base import Batch
from saucier.objectives.latent_passages import QUESTION, Found, Passages, Retriever
from saucier.objectives.teacher_losses import inner_products, precise

NULL = -1
"""The place of the null document: a passage without text, which is read where none helps."""


class LivePassages(Passages, Protocol):
    """Passages whose texts a retriever can read, and an index of them that is made again now and then."""

    def find_others(self, batch: Batch, questions: Tensor, count: int) -> tuple[Tensor, int]:
        """Return the nearest passages that do not hold the question itself, and for how many questions one did.

        Shapes: questions [B, E] -> [B, count].
        """

    def spell(self, places: Tensor) -> Batch:
        """Return what the retriever reads of passages, `NULL` among them. Shapes: places [U] -> [U, L]."""

    def begin_step(self, step: int) -> None:
        """Make sure that the index is the one of a step (from 0), which a run that goes on has from its folder."""

    def finish_step(self, step: int) -> None:
        """Make the index again where it is time, after the update of a step (from 0)."""

    @property
    def age(self) -> int:
        """How many updates the encoder has had since it gave the index its vectors."""


@dataclass(frozen=True, slots=True)
class LiveRetriever(Retriever):
    """One encoder of questions and passages, both with gradients; of K passages the last one is the null document."""

    passages: LivePassages

    @property
    def figures(self) -> Mapping[str, str]:
        """How old the index is, what the null document gets, and how many questions would have found themselves."""
        return {"stale": "updates since the index was made", "null": "chance of no passage, before the answer is read",
                "own": "share of the texts whose own passage was left out"}

    def begin_step(self, step: int) -> None:
        """Take the index of that step."""
        self.passages.begin_step(step)

    def finish_step(self, step: int) -> None:
        """Make the index again where it is time."""
        self.passages.finish_step(step)

    def find(self, batch: Batch, count: int | None = None) -> Found:
        """Find passages for the questions of a batch, and weigh them by vectors that are made now.

        Source: Guu et al. 2020, §3.3 and §3.4 (null document, trivial retrievals), arXiv:2002.08909.
        """
        inputs = {name.removeprefix(QUESTION): value for name, value in batch.items() if name.startswith(QUESTION)}
        vectors = precise(self.model(**inputs).embeddings)
        nothing = torch.full((len(vectors), 1), NULL)
        others = (count or self.count) - 1
        found, own = self.passages.find_others(batch, vectors.detach(), others) if others else (nothing[:, :0], 0)
        places = torch.cat([found, nothing], dim=1)
        known, back = places.unique(return_inverse=True)  # each passage goes through the encoder once
        spelled = {name: value.to(vectors.device) for name, value in self.passages.spell(known).items()}
        encoded = precise(self.model(**spelled).embeddings)
        scores = self.scale * inner_products(vectors[:, None], encoded[back.to(vectors.device)]).squeeze(1)
        return Found(places.to(vectors.device), scores, {
            "stale": float(self.passages.age * len(vectors)), "own": float(own),
            "null": float(scores.detach().softmax(-1)[:, -1].sum())})
