"""How a model knows the order of its tokens: two slots, by where the positions enter.

`EmbeddingPositions` are added to the token embeddings; `AttentionPositions` act inside self-attention, by rotating
queries and keys or as an addition to the scores. A parameter lives in the kind that uses it, and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.disentangled import Disentangled

Factor = Annotated[float, Field(ge=1)]
Factors = tuple[Annotated[float, Field(gt=0)], ...]


class AcrossHalves(Config):
    """Value i turns with value i + half of the rotated width. Source: Black et al. 2022 (GPT-NeoX), code release."""

    kind: Literal["halves"] = "halves"


class Neighbours(Config):
    """Value 2i turns with value 2i + 1. Source: Su et al. 2021, §3.4.2, eq 34, arXiv:2104.09864; used by GPT-J."""

    kind: Literal["neighbours"] = "neighbours"


Pairs = Annotated[AcrossHalves | Neighbours, Field(discriminator="kind")]
"""Which values of a head turn together; the two differ by a fixed permutation of the head's width."""


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


class InOrder(Config):
    """Positions are counted from the row's beginning, padding included."""

    kind: Literal["in_order"] = "in_order"
    offset: int = Field(default=0, ge=0)
    """Number of the first position; the rows before it are never used (BART: 2)."""


class SkipPadding(Config):
    """Only tokens other than `padding` are counted, from `padding` + 1.

    Padding itself has position `padding`. Positions that the batch gives are taken as they are.
    Source: Liu et al. 2019, code release (fairseq).
    """

    kind: Literal["skip_padding"] = "skip_padding"
    padding: int = Field(default=1, ge=0)
    """Id of the padding token."""


class RealTokens(Config):
    """Only tokens that the attention mask shows are counted. Source: Zhang et al. 2022 (OPT), code release."""

    kind: Literal["real_tokens"] = "real_tokens"
    offset: int = Field(default=0, ge=0)
    """Number of the first position; padding has the one before it."""


Places = Annotated[InOrder | SkipPadding | RealTokens, Field(discriminator="kind")]
"""How the rows of a position table are numbered."""


class Learned(Config):
    """One trained vector a position. Source: Gehring et al. 2017, arXiv:1705.03122; used by GPT and BERT."""

    kind: Literal["learned"] = "learned"
    length: int = Field(gt=0)
    """Number of rows of the table; without an offset, the longest input the model can take."""
    places: Places = InOrder()
    """Which row belongs to which token."""


class Interleaved(Config):
    """Sines at even places, cosines at odd ones. Source: Vaswani et al. 2017, §3.5, arXiv:1706.03762."""

    kind: Literal["interleaved"] = "interleaved"


class Halves(Config):
    """All sines, then all cosines, of the same wavelengths. Source: Junczys-Dowmunt et al. 2018, arXiv:1804.00344."""

    kind: Literal["halves"] = "halves"


class FullRange(Config):
    """All sines, then all cosines; the longest wavelength is the whole base, one step longer than in `Halves`.

    Source: Vaswani et al. 2018 (Tensor2Tensor), arXiv:1803.07416, code release; so also Fan et al. 2021 (M2M-100).
    """

    kind: Literal["full_range"] = "full_range"


SinusoidLayout = Annotated[Interleaved | Halves | FullRange, Field(discriminator="kind")]
"""In which order a vector holds its sines and cosines, and how their wavelengths are spaced."""


class Sinusoidal(Config):
    """Fixed sines and cosines of geometrically spaced wavelengths.

    Source: Vaswani et al. 2017, §3.5, arXiv:1706.03762.
    """

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength."""
    places: Places = InOrder()
    """Which position belongs to which token; with `SkipPadding` the padding's vector is zero."""
    layout: SinusoidLayout = Interleaved()
    """Where sines and cosines stand in a vector."""
    length: int | None = Field(default=None, gt=0)
    """The longest input, where a published table ends; None: any."""


class NoPositions(Config):
    """No positional information in this slot.

    A causal model can still infer order (Haviv et al. 2022, arXiv:2203.16634).
    """

    kind: Literal["none"] = "none"


class Shaw(Config):
    """Learned vectors for clipped relative distances, added to keys and to values.

    Source: Shaw et al. 2018, arXiv:1803.02155.
    """

    kind: Literal["shaw"] = "shaw"
    max_distance: int = Field(default=16, gt=0)
    """Distances beyond this share one vector (k in the paper)."""


class RelativeKey(Config):
    """A learned vector for each distance, on the keys alone and without clipping (`relative_key`).

    Source: Shaw et al. 2018, §3.2, eq 4, arXiv:1803.02155.
    """

    kind: Literal["relative_key"] = "relative_key"
    length: int = Field(gt=0)
    """The longest input; the table has a row for each of 2 · length - 1 distances."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on what the vectors add to the scores; None: that of the scores themselves."""


class RelativeKeyQuery(Config):
    """A learned vector for each distance, on keys and on queries (`relative_key_query`).

    Source: Huang et al. 2020, method 4, arXiv:2009.13658.
    """

    kind: Literal["relative_key_query"] = "relative_key_query"
    length: int = Field(gt=0)
    """The longest input; the table has a row for each of 2 · length - 1 distances."""
    scale: float | None = Field(default=None, gt=0)
    """Factor on what the vectors add to the scores; None: that of the scores themselves."""


class MusicTransformer(Config):
    """Learned relative keys without clipping, computed by skewing in O(L·D) memory.

    Source: Huang et al. 2018, arXiv:1809.04281, §3.4.1.
    """

    kind: Literal["music_transformer"] = "music_transformer"
    length: int = Field(gt=0)
    """The largest number of past positions, itself included, that has a vector."""


class T5Bias(Config):
    """One learned scalar a head for each bucket of relative distance, shared by all layers of a stack.

    Source: Raffel et al. 2020, §2.1, arXiv:1910.10683.
    """

    kind: Literal["t5_bias"] = "t5_bias"
    buckets: int = Field(default=32, ge=4)
    """Number of buckets; half of them (a quarter a side, when bidirectional) hold exact distances, rounded down."""
    max_distance: int = Field(default=128, gt=1)
    """From this distance on everything falls into the last bucket."""
    bidirectional: bool = True
    """Whether the future has buckets of its own: true in an encoder, false in a causal decoder."""


class Rotary(Config):
    """Queries and keys rotated by an angle proportional to the position.

    Source: Su et al. 2021, §3.4, arXiv:2104.09864.
    """

    kind: Literal["rotary"] = "rotary"
    base: float = Field(default=10000.0, gt=1)
    """Base of the geometric series of frequencies."""
    share: float = Field(default=1.0, gt=0, le=1)
    """The part of every head that is rotated (GPT-NeoX rotates a quarter)."""
    pairs: Pairs = AcrossHalves()
    """Which values turn together."""
    scaling: Scaling = NoScaling()
    """How the frequencies are changed for longer texts."""
    values: bool = False
    """Whether values turn too. Source: Su et al. 2021, code release of RoFormer."""
    length: int | None = Field(default=None, gt=0)
    """The longest input, where a published table ends; None: any."""

    def width(self, head_dim: int) -> int:
        """Return how many values of a head of this width are rotated."""
        return int(head_dim * self.share + 1e-6)  # six sevenths of seven are six


class Alibi(Config):
    """A penalty on the score, linear in the distance, with one fixed slope a head.

    Source: Press et al. 2022, §3, arXiv:2108.12409.
    """

    kind: Literal["alibi"] = "alibi"


class TransformerXL(Config):
    """Scores of content and of relative distance apart, each with a trained bias in place of the query's own position.

    The distance is a sine and cosine vector, through a trained map. Source: Dai et al. 2019, §3.3, arXiv:1901.02860.
    """

    kind: Literal["transformer_xl"] = "transformer_xl"
    base: float = Field(default=10000.0, gt=1)
    """Ratio between the longest and the shortest wavelength of the sines."""
    clamp: int | None = Field(default=None, gt=0)
    """Distances beyond this count as this; None: all are different."""
    shared_biases: bool = False
    """One pair of biases for all layers of the stack, as in the paper; otherwise every layer has its own."""
    segments: bool = False
    """A third score: are query and key of the same segment? Source: Yang et al. 2019, §2.6, arXiv:1906.08237."""
    mirrored: bool = False
    """The second half of the batch's rows is text that runs backwards: its distances change sign.

    Source: Yang et al. 2019, §3.1, code release.
    """
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the vectors of the distances."""


class GlobalLocal(Config):
    """A vector on the keys for each of a few labels of how query and key are related; global tokens begin the row.

    Two local tokens, or two global ones, are told by their distance, clipped; a local and a global one by whether the
    second stands for the stretch of text that the first is in. Source: Ainslie et al. 2020 (ETC), §3.1–3.2,
    arXiv:2004.08483, whose stretches are sentences.
    """

    kind: Literal["global_local"] = "global_local"
    globals: int = Field(ge=0)
    """Global tokens at the beginning of every row."""
    stretch: int = Field(default=64, gt=0)
    """Local tokens that one global token stands for: the first for the first, and so on."""
    reach: int = Field(default=12, gt=0)
    """Distances beyond this share one label on each side (k in the paper)."""

    @property
    def labels(self) -> int:
        """How many labels there are: distances among local and among global tokens, and two each way between them."""
        return 2 * (2 * self.reach + 1) + 4


class Axial(Config):
    """Positions as rows and columns of a grid: one trained vector for the row beside one for the column.

    Source: Kitaev et al. 2020, code release, arXiv:2001.04451; Ho et al. 2019, arXiv:1912.12180, for the grid.
    """

    kind: Literal["axial"] = "axial"
    shape: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]]
    """Rows and columns; position p stands in row p // columns."""
    widths: tuple[Annotated[int, Field(gt=0)], Annotated[int, Field(gt=0)]]
    """Widths of the two vectors, together the width of what they are added to."""
    places: Places = InOrder()
    """Which position belongs to which token."""

    @property
    def length(self) -> int:
        """Places of the grid."""
        return self.shape[0] * self.shape[1]


EmbeddingPositions = Annotated[Learned | Sinusoidal | Axial | NoPositions, Field(discriminator="kind")]

AttentionPositions = Annotated[
    Shaw | RelativeKey | RelativeKeyQuery | MusicTransformer | T5Bias | Rotary | Alibi | Disentangled | TransformerXL
    | GlobalLocal | NoPositions,
    Field(discriminator="kind"),
]
