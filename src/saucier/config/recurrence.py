"""What a stack keeps from one segment of a text to the next, and its second stream of queries."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import Probability


class FromNothing(Config):
    """The first segment of a text has no memory. Source: Yang et al. 2019, code release."""

    kind: Literal["nothing"] = "nothing"


class FromZeros(Config):
    """The first segment of a text reads a whole memory of zeros. Source: Dai et al. 2019, code release."""

    kind: Literal["zeros"] = "zeros"


class SegmentMemory(Config):
    """The hidden vectors that every block read before, seen by its attention as further keys, without a gradient.

    A pass gives the memory for the next segment as `mems`; a pass that gets `mems` reads it.
    Source: Dai et al. 2019 (Transformer-XL), §3.2, arXiv:1901.02860.
    """

    length: int | None = Field(default=None, gt=0)
    """The most positions that are kept; None: all."""
    start: Annotated[FromNothing | FromZeros, Field(discriminator="kind")] = FromNothing()
    """What the first segment reads."""
    reuse: int | None = Field(default=None, gt=0)
    """Only so many first positions of a segment are kept; None: all. Source: Yang et al. 2019, code release."""
    evaluation: bool = True
    """Whether a pass in evaluation gives a memory where the caller does not say (`use_mems`)."""
    training: bool = True
    """Likewise in training."""


class QueryVector(Config):
    """A second stream: rows that ask about the places in `target_mapping`, and begin as one trained vector.

    They read the first stream's keys and values, and nobody reads theirs.
    Source: Yang et al. 2019 (XLNet), §2.3 and §2.4, arXiv:1906.08237.
    """

    dropout: Probability = 0.0
    """Dropout on the vector."""
