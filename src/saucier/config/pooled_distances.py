"""Funnel-Transformer's relative positions as data."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from saucier.config.attention_slots import PositionsInAttention
from saucier.config.counting import Node
from saucier.config.projection import Projection


class PooledDistances(PositionsInAttention):
    """Scores of distance and of segment, each with a trained bias in place of the query's own, among pooled tokens.

    A pooled token is at the place of the first token that it was made of. Neither score is given to the first token or
    by it, where it stands for the whole text. Source: Dai et al. 2020, §2.2 and appendix A.2, arXiv:2006.03236.
    """

    kind: Literal["pooled_distances"] = "pooled_distances"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength of the sines."""
    separate_first: bool = True
    """Whether the first token has no distance and no segment."""
    shared_segment: int = Field(default=2, ge=0)
    """The segment that counts as the same as any other: that of the first token."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the vectors of the distances."""
    query_bias: ClassVar[bool] = False

    @property
    def reads_rows(self) -> bool:
        """Segments are of a row."""
        return True

    def nodes(self, projection: Projection, dim: int) -> list[Node]:
        """Return the map of the distances, three biases, and the vectors of two segments."""
        width = projection.widths(dim)[0]
        return [Node("positions", self.kind, "", f"{dim} → {width}", dim * width + 5 * width)]
