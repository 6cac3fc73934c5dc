"""Disentangled attention (DeBERTa) as a position: distances enter the scores by vectors of their own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.norms import Norm, Probability


class ExactDistances(Config):
    """One vector for each distance. Source: He et al. 2021, §3.1, eq 3, arXiv:2006.03654."""

    kind: Literal["exact"] = "exact"
    reach: int = Field(default=512, gt=0)
    """Distances from here on share a vector (k in the paper)."""

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return 2 * self.reach


class LogDistances(Config):
    """One vector for each near distance, then for ranges that grow with the distance.

    Source: He et al. 2021, code release of DeBERTa-v2; He et al. 2023 (v3), §5.1, arXiv:2111.09543.
    """

    kind: Literal["log"] = "log"
    buckets: int = Field(default=256, gt=1)
    """Vectors on each side; half of them hold exact distances."""
    reach: int = Field(default=512, gt=0)
    """The distance that falls into the last bucket."""

    @property
    def rows(self) -> int:
        """Number of vectors."""
        return 2 * self.buckets


Distances = Annotated[ExactDistances | LogDistances, Field(discriminator="kind")]


class OwnMaps(Config):
    """Maps of their own from the distance vectors to keys and to queries. Source: He et al. 2021, §3.1, eq 4."""

    kind: Literal["own"] = "own"
    key_bias: bool = True
    """Bias on the map to keys; the map to queries has one."""


class SharedMaps(Config):
    """The attention's own maps to keys and queries, for distances too. Source: He et al. 2021, v2 code release."""

    kind: Literal["shared"] = "shared"


class Disentangled(Config):
    """Scores of content and distance: a query meets the distance's key, a key meets the distance's query.

    All layers of a stack share one table of distance vectors. Source: He et al. 2021, §3.1, eq 2-4, arXiv:2006.03654.
    """

    kind: Literal["disentangled"] = "disentangled"
    distances: Distances = ExactDistances()
    """Which distances have a vector."""
    maps: Annotated[OwnMaps | SharedMaps, Field(discriminator="kind")] = OwnMaps()
    """What makes keys and queries of distance vectors."""
    content_to_position: bool = True
    """Whether queries meet the keys of distances."""
    position_to_content: bool = True
    """Whether keys meet the queries of distances."""
    norm: Norm | None = None
    """The norm on the table (v3)."""
    dropout: Probability = 0.0
    """Dropout on the table, anew in each layer."""

    @property
    def terms(self) -> int:
        """How many products a score is the sum of; the scale is one over the root of the width times this (eq 4)."""
        return 1 + self.content_to_position + self.position_to_content
