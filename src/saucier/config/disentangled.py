"""Disentangled attention (DeBERTa) as a position: distances enter the scores by vectors of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from saucier.config.attention_slots import AttentionParts, PositionsInAttention, Projection
from saucier.config.base import Config
from saucier.config.counting import Node, linear
from saucier.config.norms import Norm, Probability
from saucier.errors import InputError


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


class Disentangled(PositionsInAttention):
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

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Some score reads the distances, and logarithmic ranges begin where exact distances end."""
        if self.terms == 1:
            raise InputError("disentangled positions without either score", where=f"{path}.positions",
                             remedy="use content_to_position or position_to_content, or kind: none")
        distances = self.distances
        if isinstance(distances, LogDistances) and distances.reach - 1 <= distances.buckets // 2:
            raise InputError(f"reach {distances.reach} is within the {distances.buckets // 2} exact distances",
                             where=f"{path}.positions", remedy="raise reach or lower buckets")

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the maps from the distance table, and the products of every token with its rows.

        The maps themselves run once a pass, over the table, and are not counted per token.
        """
        width, found = projection.widths(dim)[0], []
        if isinstance(self.maps, OwnMaps):
            if self.content_to_position:
                found.append(linear("distance_key", dim, width, bias=self.maps.key_bias))
            if self.position_to_content:
                found.append(linear("distance_query", dim, width, bias=True))
        found = [replace(node, flops=0.0, detail="once a pass") for node in found]
        work = 2.0 * self.distances.rows * width * (self.terms - 1)
        return [*found, Node("distance scores", self.kind, f"{self.distances.rows} rows", flops=work)]
