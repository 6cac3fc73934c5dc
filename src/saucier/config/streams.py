"""What the sublayers of a stack add to, as data."""

from __future__ import annotations

from typing import Literal

from saucier.config.base import Config


class OneStream(Config):
    """Every sublayer reads and changes the one residual stream. Source: He et al. 2016, arXiv:1512.03385."""

    kind: Literal["one"] = "one"


class Reversible(Config):
    """Two streams that begin alike: each sublayer reads one and changes the other, in turn.

    What stood before a block follows from what stands behind it, so that nothing need be kept for learning; the streams
    side by side are the stack's output. Source: Gomez et al. 2017, arXiv:1707.04585; Kitaev et al. 2020, §3,
    arXiv:2001.04451 (S eq 103–105).
    """

    kind: Literal["reversible"] = "reversible"
