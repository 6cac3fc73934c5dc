"""Visibilities with gaps: every so-manieth position, counted from the query or from the row's beginning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.algebra import Algebra


class Dilated(Algebra):
    """A window with gaps: distances 0, `dilation`, … (`size` - 1) · `dilation`, on both sides.

    `ByHead(terms=(Window(257), Dilated(size=257, dilation=2)))` dilates the second half of the heads.
    Source: Beltagy et al. 2020, §3.1, arXiv:2004.05150.
    """

    kind: Literal["dilated"] = "dilated"
    size: int = Field(gt=0)
    """Keys that are visible on each side, the query's own counted on both."""
    dilation: int = Field(gt=0)
    """Positions from one visible key to the next."""


class Strided(Algebra):
    """A query sees the keys that are a multiple of `stride` positions away.

    `Causal() & Strided(stride=l)` is the second strided pattern, `Causal() & Window(l + 1)` the first one.
    Source: Child et al. 2019, §4.3, arXiv:1904.10509.
    """

    kind: Literal["strided"] = "strided"
    stride: int = Field(gt=0)
    """Positions from one visible key to the next; near the square root of the length, cost grows as n·√n."""


class Columns(Algebra):
    """All see the last `count` positions of every block of `stride`, counted from the row's beginning.

    `Causal() & Columns(stride=l, count=c)` is the second fixed pattern, `Causal() & BlockWindow(size=l, reach=0)` the
    first one. A query before the first of them sees nothing, and gets zeros. Source: Child et al. 2019, §4.3.
    """

    kind: Literal["columns"] = "columns"
    stride: int = Field(gt=0)
    """Positions of a block."""
    count: int = Field(default=1, gt=0)
    """Positions at the end of each block that are seen."""
