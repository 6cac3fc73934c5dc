"""Vocabularies in clusters: token tables of falling width, and the adaptive softmax over them.

Letters: B batch, L length, D dim, V vocab, C clusters, N targets, W width of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saucier import config as c
from saucier.config.embedding import cluster_sizes
from saucier.parts.linear import Linear, linear
from saucier.parts.pooling import Reading


class ClusterTables(nn.Module):
    """A table for each cluster, and a map from its width to the model's. Source: Baevski and Auli 2019, §3."""

    def __init__(self, config: c.ProjectClusters, vocab: int, dim: int) -> None:
        """Build the tables."""
        super().__init__()
        self.num_embeddings, self.dim = vocab, dim
        sizes = list(zip(cluster_sizes(config.cutoffs, vocab), config.widths(), strict=True))
        self.starts = (0, *config.cutoffs)
        self.tables = nn.ModuleList(nn.Embedding(size, width) for size, width in sizes)
        self.maps = nn.ModuleList(Linear(width, dim, bias=False) for _, width in sizes)

    @property
    def weight(self) -> Tensor:
        """The first cluster's table, whose number format and device are those of all."""
        return self.tables[0].weight  # type: ignore[return-value]  # a parameter of an embedding

    def forward(self, ids: Tensor) -> Tensor:
        """Shapes: [B, L] -> [B, L, D]."""
        flat = ids.flatten()
        found = torch.zeros(len(flat), self.dim, dtype=self.weight.dtype, device=flat.device)
        for start, table, project in zip(self.starts, self.tables, self.maps, strict=True):
            places = ((flat >= start) & (flat < start + len(table.weight))).nonzero()[:, 0]  # type: ignore[arg-type]
            found = found.index_copy(0, places, project(table(flat[places] - start)).to(found.dtype))
        return found.view(*ids.shape, self.dim)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What turns hidden vectors into scores of one cluster's tokens."""

    start: int
    """The cluster's first token."""
    weight: Tensor
    """[tokens, W]."""
    bias: Tensor
    """[tokens]."""
    project: Tensor | None
    """[D, W], the map from the cluster's width to the model's, used backwards; None: hidden vectors as they are."""

    def scores(self, hidden: Tensor, more: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Scores of the tokens, and of what `more` adds, rows and biases. Shapes: [..., D] -> [..., tokens]."""
        narrow = hidden if self.project is None else linear(hidden, self.project.T)
        if more is None:
            return linear(narrow, self.weight, self.bias)
        return linear(narrow, torch.cat([self.weight, more[0]]), torch.cat([self.bias, more[1]]))


class AdaptiveHead(nn.Module):
    """Log probabilities of tokens by cluster. Source: Grave et al. 2017, §4, arXiv:1609.04309."""

    def __init__(self, config: c.AdaptiveHead, dim: int, tokens: Any) -> None:
        """Build what is not the embedding's, whose table counts the tokens; `tie` gives the rest."""
        super().__init__()
        vocab = tokens.num_embeddings
        self.config, self.vocab = config, vocab
        sizes, widths = cluster_sizes(config.cutoffs, vocab), config.widths()
        self.cluster_weight = nn.Parameter(torch.empty(len(config.cutoffs), config.width))
        self.cluster_bias = nn.Parameter(torch.empty(len(config.cutoffs)))
        self.bias = nn.Parameter(torch.empty(vocab))
        whole = zip([vocab], widths[:1], strict=True) if config.division == 1 else zip(sizes, widths, strict=True)
        self.tables = nn.ParameterList([] if config.tied else [torch.empty(size, width) for size, width in whole])
        own = [not tied for tied in config.tied_maps] or [True] * len(widths)
        self.maps = nn.ParameterDict({str(number): torch.empty(dim, width) for number, width in enumerate(widths)
                                      if config.maps(dim) and own[number]})
        self.embedding: tuple[Any, ...] = ()
        """The embedding, out of sight of this module's own parameters."""

    def tie(self, embedding: nn.Module) -> None:
        """Take tables and maps that are not the head's own from an embedding."""
        self.embedding = (embedding,)

    def clusters(self) -> list[Cluster]:
        """Return the clusters, the most frequent tokens first."""
        starts, sizes = (0, *self.config.cutoffs), cluster_sizes(self.config.cutoffs, self.vocab)
        return [Cluster(start, self.table(number, start, size), self.bias[start:start + size], self.project(number))
                for number, (start, size) in enumerate(zip(starts, sizes, strict=True))]

    def table(self, number: int, start: int, size: int) -> Tensor:
        """Return a cluster's output matrix. Shapes: -> [tokens, W]."""
        tables: Any = self.tables
        if self.config.tied:
            tokens = self.embedding[0].tokens
            tables = [table.weight for table in tokens.tables] if isinstance(tokens, ClusterTables) else [tokens.weight]
        return tables[number] if len(tables) > 1 else tables[0][start:start + size]  # type: ignore[no-any-return]

    def project(self, number: int) -> Tensor | None:
        """Return a cluster's map. Shapes: -> [D, W]."""
        if str(number) in self.maps:
            return self.maps[str(number)]  # type: ignore[no-any-return]
        embedding = self.embedding[0]
        if not self.config.tied_maps or not self.config.maps(embedding.dim):
            return None
        clustered = isinstance(embedding.tokens, ClusterTables)
        shared = embedding.tokens.maps[number] if clustered else embedding.project
        return shared.weight  # type: ignore[no-any-return]

    def first(self, hidden: Tensor, clusters: list[Cluster]) -> Tensor:
        """Scores of the first cluster's tokens and of the other clusters. Shapes: -> [..., tokens + C - 1]."""
        return clusters[0].scores(hidden, (self.cluster_weight, self.cluster_bias))

    def forward(self, hidden: Tensor) -> Tensor:
        """Log probabilities of all tokens. Shapes: [..., D] -> [..., V]."""
        clusters = self.clusters()
        first = self.first(hidden, clusters).log_softmax(-1)
        known = len(clusters[0].bias)
        rest = [first[..., known + number, None] + cluster.scores(hidden).log_softmax(-1)
                for number, cluster in enumerate(clusters[1:])]
        return torch.cat([first[..., :known], *rest], dim=-1)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Minus the log probability of each target, in float32 at least; a cluster is scored for its own targets alone.

        Shapes: hidden [N, D], targets [N] -> [N].
        """
        clusters = self.clusters()
        known = len(clusters[0].bias)
        number = torch.bucketize(targets, torch.tensor(self.config.cutoffs, device=targets.device), right=True)
        first = torch.where(number == 0, targets, known + number - 1)
        found = F.cross_entropy(precise(self.first(hidden, clusters)), first, reduction="none")
        for index, cluster in enumerate(clusters[1:], start=1):
            places = (number == index).nonzero()[:, 0]
            scores = cluster.scores(hidden.index_select(0, places))
            within = F.cross_entropy(precise(scores), targets[places] - cluster.start, reduction="none")
            found = found.index_add(0, places, within)
        return found

    def answer(self, reading: Reading) -> dict[str, Tensor]:
        """Log probabilities [B, L, V], which are logits too."""
        return {"logits": self(reading.hidden)}


def precise(scores: Tensor) -> Tensor:
    """Return scores in float32, or as they are in float64: sums over a vocabulary need it."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
