"""Vocabularies in clusters by frequency: narrower tables, and a softmax in two steps, for rarer tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.base import Config


def cluster_sizes(cutoffs: tuple[int, ...], vocab: int) -> list[int]:
    """Return how many tokens each cluster holds; `cutoffs` are the ends of all but the last."""
    ends = (*cutoffs, vocab)
    return [end - start for start, end in zip((0, *cutoffs), ends, strict=True)]


class ProjectClusters(Config):
    """A table for each cluster of tokens, each narrower than the one before, and a map from each to `dim`.

    Source: Baevski and Auli 2019, §3, arXiv:1809.10853; Dai et al. 2019, code release.
    """

    kind: Literal["clusters"] = "clusters"
    width: int = Field(gt=0)
    """Width of the first cluster's table."""
    division: int = Field(default=4, gt=1)
    """Each table is narrower than the one before by this factor."""
    cutoffs: tuple[int, ...] = Field(min_length=1)
    """The first token of every cluster but the first; tokens are numbered by falling frequency."""

    def widths(self) -> list[int]:
        """Return the width of each cluster's table."""
        return [self.width // self.division**cluster for cluster in range(len(self.cutoffs) + 1)]


class AdaptiveHead(Config):
    """Log probabilities in two steps: one of the first cluster's tokens or a cluster, then a token of that cluster.

    Source: Grave et al. 2017, §4, arXiv:1609.04309; Dai et al. 2019, §4.1, arXiv:1901.02860.
    """

    kind: Literal["adaptive"] = "adaptive"
    cutoffs: tuple[int, ...] = Field(min_length=1)
    """The first token of every cluster but the first."""
    width: int = Field(gt=0)
    """Width of the vectors that meet the first cluster's output matrix."""
    division: int = Field(default=1, gt=0)
    """Each cluster's vectors are narrower than those of the one before by this factor; 1: all are equally wide."""
    tied: bool = True
    """Use the embedding's tables as output matrices. Source: Press and Wolf 2017, arXiv:1608.05859."""
    tied_maps: tuple[bool, ...] = ()
    """Whether each cluster's map to its width is the embedding's, too."""

    def widths(self) -> list[int]:
        """Return the width of each cluster's vectors."""
        return [self.width // self.division**cluster for cluster in range(len(self.cutoffs) + 1)]

    def maps(self, dim: int) -> bool:
        """Say whether hidden vectors of width `dim` pass through a map before they meet an output matrix."""
        return self.division > 1 or self.width != dim
