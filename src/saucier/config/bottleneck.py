"""A block that narrows the stream on its way in and widens it on its way out, as data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.layers import LayerNorm, Norm, Probability


class ReadsNarrow(Config):
    """Queries, keys and values are made of the narrow stream."""

    kind: Literal["narrow"] = "narrow"


class ReadsShared(Config):
    """Queries and keys are made of a second narrow map of the wide stream, values of the wide stream itself."""

    kind: Literal["shared"] = "shared"


class ReadsWide(Config):
    """Queries, keys and values are made of the wide stream."""

    kind: Literal["wide"] = "wide"


Reads = Annotated[ReadsNarrow | ReadsShared | ReadsWide, Field(discriminator="kind")]


class Bottleneck(Config):
    """A narrow stream inside a block: `norm(x + dropout(up(sublayers(norm(down(x))))))`.

    Source: Sun et al. 2020 (MobileBERT), §3.1, fig 1c, arXiv:2004.02984.
    """

    width: int = Field(gt=0)
    """Width of the stream inside the block."""
    reads: Reads = ReadsShared()
    """What the attention reads."""
    norm: Norm = LayerNorm()
    """The norms after the maps in and after the residual around the block."""
    dropout: Probability = 0.0
    """Dropout on what the block adds to the wide stream."""

    def attention_inputs(self, dim: int) -> tuple[int, int]:
        """Return the widths that queries and keys, and values, are made of."""
        match self.reads:
            case ReadsNarrow():
                return self.width, self.width
            case ReadsShared():
                return self.width, dim
            case ReadsWide():
                return dim, dim
