"""How a model knows the order of its tokens: two slots, by where the positions enter.

`EmbeddingPositions` are added to the token embeddings; `AttentionPositions` act inside self-attention, by rotating
queries and keys or as an addition to the scores. A parameter lives in the kind that uses it, and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.attention_slots import AttentionParts, NoPositions, PositionsInAttention
from saucier.config.base import Config
from saucier.config.disentangled import Disentangled
from saucier.config.registry import OpenSlot
from saucier.config.relative_positions import (
    Alibi,
    GlobalLocal,
    MusicTransformer,
    PooledDistances,
    RelativeVectors,
    Shaw,
    T5Bias,
    TransformerXL,
)
from saucier.errors import InputError

Factor = Annotated[float, Field(ge=1)]
Factors = tuple[Annotated[float, Field(gt=0)], ...]


class Pairs(Config):
    """Which values of a head turn together; the two differ by a fixed permutation of the head's width.

    - halves: value i turns with value i + half of the rotated width. Source: Black et al. 2022 (GPT-NeoX),
    code release;
    - neighbours: value 2i turns with value 2i + 1. Source: Su et al. 2021, §3.4.2, eq 34, arXiv:2104.09864; used by
      GPT-J.
    """

    kind: Literal["halves", "neighbours"]


class NoScaling(Config):
    """The frequencies as they were trained."""

    kind: Literal["none"] = "none"


class LinearScaling(Config):
    """All positions divided by one factor. Source: Chen et al. 2023, §2.3, eq 4, arXiv:2306.15595."""

    kind: Literal["linear"] = "linear"
    factor: Factor
    """How many times longer the texts are."""


class DynamicScaling(Config):
    """A base that grows with the longest text of the pass, once it is longer than the trained length.

    Source: Peng et al. 2023, §3.3 (dynamic NTK), arXiv:2309.00071.
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: Factor
    """How fast the base grows."""
    length: int = Field(gt=0)
    """The trained length, in tokens."""


class Llama3Scaling(Config):
    """Long waves divided by a factor, short ones kept, with a slope between.

    Source: Grattafiori et al. 2024 (Llama 3), code release of 3.1, arXiv:2407.21783.
    """

    kind: Literal["llama3"] = "llama3"
    factor: Factor
    """How many times longer the texts are."""
    low: float = Field(default=1.0, gt=0)
    """Waves that turn fewer times than this in the trained length are divided."""
    high: float = Field(default=4.0, gt=0)
    """Waves that turn more times than this are kept."""
    length: int = Field(default=8192, gt=0)
    """The trained length, in tokens."""


class Yarn(Config):
    """Waves divided by a factor the more the fewer times they turn, and scores made sharper.

    Source: Peng et al. 2023, §3.2–3.4, arXiv:2309.00071.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    """How many times longer the texts are (s in the paper)."""
    length: int = Field(gt=0)
    """The trained length, in tokens (L in the paper)."""
    fast: float = Field(default=32.0, gt=0)
    """Waves that turn more times than this in the trained length are kept (β in the paper)."""
    slow: float = Field(default=1.0, gt=0)
    """Waves that turn fewer times are divided (α in the paper)."""
    rounded: bool = True
    """Whether the slope between the two begins and ends at whole pairs."""
    attention: float | None = Field(default=None, gt=0)
    """Factor on rotated queries and on keys (the root of 1/t in the paper); None: 0.1·ln(factor) + 1."""


class LongRope(Config):
    """A divisor for each pair, one set for texts within the trained length and one for longer ones.

    Source: Ding et al. 2024, §3, arXiv:2402.13753.
    """

    kind: Literal["longrope"] = "longrope"
    short: Factors
    """Divisors of the frequencies within the trained length, one for each pair."""
    long: Factors
    """Divisors of the frequencies of a pass with longer texts."""
    length: int = Field(gt=0)
    """The trained length, in tokens."""
    attention: float = Field(default=1.0, gt=0)
    """Factor on rotated queries and on keys."""


Scaling = Annotated[NoScaling | LinearScaling | DynamicScaling | Llama3Scaling | Yarn | LongRope,
                    Field(discriminator="kind")]
"""How frequencies are changed so that a model reads longer texts than it was trained on."""


class CountedPlaces(Config):
    """Positions are counted from an offset.

    - in_order: from the row's beginning, padding included;
    - real_tokens: over the tokens that the attention mask shows. Source: Zhang et al. 2022 (OPT), code release.
    """

    kind: Literal["in_order", "real_tokens"]
    offset: int = Field(default=0, ge=0)
    """Number of the first position; in order, the rows before it are never used (BART: 2); of real tokens, padding has
    the one before it."""


class SkipPadding(Config):
    """Only tokens other than `padding` are counted, from `padding` + 1.

    Padding itself has position `padding`. Positions that the batch gives are taken as they are.
    Source: Liu et al. 2019, code release (fairseq).
    """

    kind: Literal["skip_padding"] = "skip_padding"
    padding: int = Field(default=1, ge=0)
    """Id of the padding token."""


Places = Annotated[CountedPlaces | SkipPadding, Field(discriminator="kind")]
"""How the rows of a position table are numbered."""


class Learned(Config):
    """One trained vector a position. Source: Gehring et al. 2017, arXiv:1705.03122; used by GPT and BERT."""

    kind: Literal["learned"] = "learned"
    length: int = Field(gt=0)
    """Number of rows of the table; without an offset, the longest input the model can take."""
    places: Places = CountedPlaces(kind="in_order")
    """Which row belongs to which token."""


class SinusoidLayout(Config):
    """In which order a vector holds its sines and cosines, and how their wavelengths are spaced.

    - interleaved: sines at even places, cosines at odd ones. Source: Vaswani et al. 2017, §3.5, arXiv:1706.03762;
    - halves: all sines, then all cosines, of the same wavelengths. Source: Junczys-Dowmunt et al. 2018,
      arXiv:1804.00344;
    - full_range: all sines, then all cosines; the longest wavelength is the whole base, one step longer than in
      `halves`. Source: Vaswani et al. 2018 (Tensor2Tensor), arXiv:1803.07416, code release; so also Fan et al. 2021
      (M2M-100).
    """

    kind: Literal["interleaved", "halves", "full_range"]


class Sinusoidal(Config):
    """Fixed sines and cosines of geometrically spaced wavelengths.

    Source: Vaswani et al. 2017, §3.5, arXiv:1706.03762.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength."""
    places: Places = CountedPlaces(kind="in_order")
    """Which position belongs to which token; with `SkipPadding` the padding's vector is zero."""
    layout: SinusoidLayout = SinusoidLayout(kind="interleaved")
    """Where sines and cosines stand in a vector."""
    length: int | None = Field(default=None, gt=0)
    """The longest input, where a published table ends; None: any."""


class Rotary(PositionsInAttention):
    """Queries and keys rotated by an angle proportional to the position.

    Source: Su et al. 2021, §3.4, arXiv:2104.09864.
    """

    kind: Literal["rotary"] = "rotary"
    base: float = Field(default=10000.0, gt=1)
    """Base of the geometric series of frequencies."""
    share: float = Field(default=1.0, gt=0, le=1)
    """The part of every head that is rotated (GPT-NeoX rotates a quarter)."""
    pairs: Pairs = Pairs(kind="halves")
    """Which values turn together."""
    scaling: Scaling = NoScaling()
    """How the frequencies are changed for longer texts."""
    values: bool = False
    """Whether values turn too. Source: Su et al. 2021, code release of RoFormer."""
    length: int | None = Field(default=None, gt=0)
    """The longest input, where a published table ends; None: any."""

    @property
    def longest(self) -> int | None:
        """The longest text, where there is a table."""
        return self.length

    def width(self, head_dim: int) -> int:
        """Return how many values of a head of this width are rotated."""
        return int(head_dim * self.share + 1e-6)  # six sevenths of seven are six

    def check(self, path: str, attention: AttentionParts, dim: int) -> None:
        """Values turn in pairs, and the scaling fits their number."""
        head = attention.projection.widths(dim)[2]
        if self.width(head) % 2 or self.width(head) == 0:
            raise InputError(
                f"rotary turns pairs of values, and {self.share:g} of a head of {head} is {self.width(head)}",
                where=f"{path}.positions", remedy="make the rotated part even")
        check_scaling(f"{path}.positions.scaling", self.scaling, self.width(head) // 2)


def check_scaling(path: str, scaling: Scaling, pairs: int) -> None:
    """Scalings that assume something of the number of rotated pairs, or whose slope would have no extent."""
    match scaling:
        case LongRope(short=short, long=long) if {len(short), len(long)} != {pairs}:
            raise InputError(
                f"{len(short)} short and {len(long)} long divisors for {pairs} pairs of values",
                where=path,
                remedy="give one divisor for each pair",
            )
        case DynamicScaling() if pairs == 1:
            raise InputError(
                "dynamic scaling keeps the fastest pair and stretches the others, and there is one pair",
                where=path,
                remedy="rotate more of each head, or use kind: linear",
            )
        case Llama3Scaling(low=low, high=high) if low >= high:
            raise InputError(
                f"waves are divided below {low:g} turns and kept above {high:g}",
                where=path,
                remedy="make high larger than low",
            )
        case Yarn(fast=fast, slow=slow) if slow >= fast:
            raise InputError(
                f"waves are divided below {slow:g} turns and kept above {fast:g}",
                where=path,
                remedy="make fast larger than slow",
            )


class Axial(Config):
    """Positions as rows and columns of a grid: one trained vector for the row beside one for the column.

    Source: Kitaev et al. 2020, code release, arXiv:2001.04451; Ho et al. 2019, arXiv:1912.12180, for the grid.
    """

    kind: Literal["axial"] = "axial"
    shape: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]]
    """Rows and columns; position p stands in row p // columns."""
    widths: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]]
    """Widths of the two vectors, together the width of what they are added to."""
    places: Places = CountedPlaces(kind="in_order")
    """Which position belongs to which token."""

    @property
    def length(self) -> int:
        """Places of the grid."""
        return self.shape[0] * self.shape[1]


EmbeddingPositions = Annotated[Learned | Sinusoidal | Axial | NoPositions, Field(discriminator="kind")]

AttentionPositions = Annotated[
    Shaw | RelativeVectors | MusicTransformer | T5Bias | Rotary | Alibi | Disentangled | TransformerXL | GlobalLocal
    | PooledDistances | NoPositions | PositionsInAttention,
    OpenSlot("position"),
]
