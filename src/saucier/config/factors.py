"""Sparse Transformer's factors: two patterns that lead from every position to every earlier one in two steps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.visibility import BlockWindow, ByHead, Causal, Columns, Strided, Visibility, Window


class StridedFactors(Config):
    """The last `stride` positions, and every position a multiple of `stride` back. Source: Child et al. 2019, §4.3."""

    kind: Literal["strided"] = "strided"
    stride: int = Field(default=128, gt=0)
    """Near the square root of the length."""

    def terms(self) -> tuple[Visibility, ...]:
        """Return the two patterns."""
        return Causal() & Window(self.stride + 1), Causal() & Strided(stride=self.stride)


class FixedFactors(Config):
    """The block of `stride` that a position stands in, and the last `count` positions of all blocks before.

    Source: Child et al. 2019, §4.3.
    """

    kind: Literal["fixed"] = "fixed"
    stride: int = Field(default=128, gt=0)
    """Positions of a block; near the square root of the length."""
    count: int = Field(default=32, gt=0)
    """Positions at the end of a block that sum it up (c in the paper)."""

    def terms(self) -> tuple[Visibility, ...]:
        """Return the two patterns."""
        own = BlockWindow(size=self.stride, reach=0)
        return Causal() & own, Causal() & Columns(stride=self.stride, count=self.count)


Factors = Annotated[StridedFactors | FixedFactors, Field(discriminator="kind")]


class Interleaved(Config):
    """One pattern a layer, in turn. Source: Child et al. 2019, §4.2, eq 6."""

    kind: Literal["interleaved"] = "interleaved"

    def turn(self, terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
        """Return what the layers of one turn see."""
        return terms


class Merged(Config):
    """Every head sees what any of the patterns shows. Source: Child et al. 2019, §4.2, eq 7."""

    kind: Literal["merged"] = "merged"

    def turn(self, terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
        """Return what the layers of one turn see."""
        first, *others = terms
        for other in others:
            first = first | other
        return (first,)


class MultiHead(Config):
    """The patterns are shared out among the heads of every layer. Source: Child et al. 2019, §4.2, eq 8."""

    kind: Literal["multi_head"] = "multi_head"

    def turn(self, terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
        """Return what the layers of one turn see."""
        return (ByHead(terms=terms),)


Form = Annotated[Interleaved | Merged | MultiHead, Field(discriminator="kind")]
"""How an attention, or a stack of them, is made of patterns (C eq 93–95)."""
