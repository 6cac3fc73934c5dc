"""The sublayers of a block as data: attention, feed-forward, experts, token mixing, and how a residual wraps them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.config.attention_slots import NoPositions, Projection, Rank
from saucier.config.base import Config
from saucier.config.counting import Node
from saucier.config.kernels import Kernel, Softmax
from saucier.config.norms import LayerNorm, Norm, Probability
from saucier.config.positions import AttentionPositions
from saucier.config.recurrent import Recurrent
from saucier.config.registry import OpenSlot
from saucier.config.visibility import Full, Visibility


class FourierMixing(Config):
    """The real part of a Fourier transform over the width and over the tokens. No parameters.

    It mixes all tokens of a row, padding too, as its published models do: a row's numbers depend on how far the batch
    is padded. Source: Lee-Thorp et al. 2022, §3.2, eq 2-3, arXiv:2105.03824.
    """

    kind: Literal["fourier"] = "fourier"


Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "identity", "quick_gelu", "clipped_gelu",
                     "squared_relu", "relu6", "leaky_relu", "mish", "hard_swish", "sigmoid", "laplace"]
"""Activation functions without weights."""


class GlobalMaps(Config):
    """Global tokens have queries of their own, and read keys and values of their own; nobody else reads these.

    Source: Beltagy et al. 2020, §3.1, "Linear Projections for Global Attention", arXiv:2004.05150.
    """

    bias: bool = True
    """Bias on the three maps."""


class SelfAttention(Config):
    """Attention of a sequence to itself, from four independent choices."""

    kind: Literal["attention"] = "attention"
    projection: Projection
    """Heads and the maps to queries, keys and values."""
    positions: AttentionPositions = NoPositions()
    """How order enters the attention itself."""
    visibility: Visibility = Full()
    """Which keys a query may see."""
    kernel: Kernel = Softmax()
    """How scores become weights."""
    global_maps: GlobalMaps | None = None
    """Maps of their own for the tokens that `Global` names; None: they use the same maps as all tokens."""


class CrossAttention(Config):
    """Attention of the decoder to the encoder's output; sees every token of it that is not padding."""

    kind: Literal["cross_attention"] = "cross_attention"
    projection: Projection
    """Heads and the maps to queries, keys and values."""
    kernel: Softmax = Softmax()
    """How scores become weights."""


class FeedForwardRanks(Config):
    """Which maps of a feed-forward are products of two matrices, second · first, and how wide they are between these.

    Source: Wang et al. 2020 (FLOP), §3.1, arXiv:1910.04732 (C eq 50).
    """

    up: Rank = None
    """Of the first map, of a gated one both halves together."""
    down: Rank = None
    """Of the second map."""


class FeedForward(Config):
    """Two linear maps with an activation between. Source: Vaswani et al. 2017, §3.3."""

    kind: Literal["feed_forward"] = "feed_forward"
    hidden: int = Field(gt=0)
    """Width between the two maps."""
    activation: Activation = "gelu"
    """What is applied between the two maps."""
    bias: bool = True
    """Bias on both maps."""
    dropout: Probability = 0.0
    """Dropout on the hidden activations."""
    ranks: FeedForwardRanks | None = None
    """Maps that are products of two matrices; None: none is."""


class GatedFeedForward(Config):
    """The hidden activations multiplied by a second linear map. Source: Shazeer 2020, arXiv:2002.05202."""

    kind: Literal["gated_feed_forward"] = "gated_feed_forward"
    hidden: int = Field(gt=0)
    """Width of the gated activations; the first map is twice as wide."""
    activation: Activation = "silu"
    """What is applied to the gate."""
    bias: bool = False
    """Bias on both maps."""
    dropout: Probability = 0.0
    """Dropout on the gated activations."""
    ranks: FeedForwardRanks | None = None
    """Maps that are products of two matrices; None: none is."""


class TopOfSoftmax(Config):
    """The likeliest experts, weighted by their probabilities among all experts.

    Source: Fedus et al. 2021 (Switch), §2.1, eq 1–2, arXiv:2101.03961.
    """

    kind: Literal["top_of_softmax"] = "top_of_softmax"
    top: int = Field(default=1, gt=0)
    """Experts for each token."""


class SoftmaxOfTop(Config):
    """The likeliest experts, weighted by their probabilities among themselves, which sum to one.

    Source: Shazeer et al. 2017, §2.1, eq 3, arXiv:1701.06538; Jiang et al. 2024 (Mixtral), §2.1, arXiv:2401.04088.
    """

    kind: Literal["softmax_of_top"] = "softmax_of_top"
    top: int = Field(default=2, gt=0)
    """Experts for each token."""


Router = Annotated[TopOfSoftmax | SoftmaxOfTop, Field(discriminator="kind")]
"""How the scores of the experts become a choice and weights."""


class Experts(Config):
    """Several feed-forwards, of which each token goes through a few. Source: Shazeer et al. 2017, §2, arXiv:1701.06538.

    The scores are computed in 32 bits, as in Fedus et al. 2021, §2.4.
    """

    kind: Literal["experts"] = "experts"
    inner: Annotated[FeedForward | GatedFeedForward, Field(discriminator="kind")]
    """One expert."""
    count: int = Field(gt=0)
    """Number of experts."""
    router: Router = SoftmaxOfTop()
    """How experts are chosen."""
    router_bias: bool = False
    """Bias on the scores."""
    capacity: int | None = Field(default=None, gt=0)
    """Tokens of a sequence that one expert takes in one pass, the first ones; the others skip it. None: all.

    Source: Fedus et al. 2021, §2.2.
    """
    noise: Probability = 0.0
    """In training the router sees every value times a random number from 1 - noise to 1 + noise.

    Source: Fedus et al. 2021, §2.4.
    """


class CustomSublayer(Config):
    """The slot of a sublayer from outside: what it refuses, what it costs, and what it mixes.

    A new one is a subclass with its own `kind`, registered with what builds, from (config, dim), a module that is
    called with vectors [B, L, D] and the `Context` of the pass.
    """

    slot: ClassVar[str] = "sublayer"
    """What `register` knows the slot by."""
    kind: str
    mixes: ClassVar[Literal["nothing", "past", "all"]] = "nothing"
    """What of a text a token's vector is made of: of its own alone, of it and earlier ones, or of all."""

    def check(self, path: str, dim: int) -> None:
        """Raise `InputError` for a width, or settings, that it cannot work with."""

    def nodes(self, dim: int, length: int) -> list[Node]:
        """Return its weights, and its work for each token of a text of this length."""
        return []

    def kept_values(self, dim: int) -> int:
        """Return the values of a token that it keeps for the backward pass."""
        return 2 * dim

    def state_values(self, dim: int) -> int:
        """Return the values of a row that decoding keeps of all earlier tokens."""
        return 0


Sublayer = Annotated[
    SelfAttention | CrossAttention | FeedForward | GatedFeedForward | Experts | FourierMixing | Recurrent
    | CustomSublayer,
    OpenSlot("sublayer"),
]


class PreNorm(Config):
    """`x + dropout(inner(norm(x)))`. Source: Radford et al. 2019 (GPT-2), §2.3; Xiong et al. 2020, arXiv:2002.04745."""

    kind: Literal["pre"] = "pre"
    inner: Sublayer
    """The sublayer."""
    norm: Norm = LayerNorm()
    """The norm, or in a sandwich both of them."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""


class PostNorm(Config):
    """`norm(x + dropout(inner(x)))`. Source: Vaswani et al. 2017, §3.1."""

    kind: Literal["post"] = "post"
    inner: Sublayer
    """The sublayer."""
    norm: Norm = LayerNorm()
    """The norm, or in a sandwich both of them."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""


class SandwichNorm(Config):
    """`x + dropout(norm_after(inner(norm(x))))`. Source: Ding et al. 2021, arXiv:2105.13290, §2.4."""

    kind: Literal["sandwich"] = "sandwich"
    inner: Sublayer
    """The sublayer."""
    norm: Norm = LayerNorm()
    """The norm, or in a sandwich both of them."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""


class Parallel(Config):
    """`y + dropout(inner(norm(x)))`: reads the x that the sublayer before it reads, and adds to the y that this gave.

    It follows a pre-norm sublayer, or another parallel one. Source: Wang and Komatsuzaki 2021 (GPT-J), code release;
    Black et al. 2022 (GPT-NeoX-20B), §2.1, arXiv:2204.06745.
    """

    kind: Literal["parallel"] = "parallel"
    inner: Sublayer
    """The sublayer."""
    norm: Norm | None = None
    """Its own norm (GPT-NeoX); None: reads through the norm of the pre-norm sublayer (GPT-J)."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""


class FromNorm(Config):
    """`n + dropout(inner(n))` where `n = norm(x)`: the residual begins behind the norm.

    Source: Shoeybi et al. 2019 (Megatron-LM), code release, arXiv:1909.08053; an option of BLOOM.
    """

    kind: Literal["from_norm"] = "from_norm"
    inner: Sublayer
    """The sublayer."""
    norm: Norm = LayerNorm()
    """The norm."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""


class Skip(Config):
    """`x + dropout(inner(x))`, without a norm. Source: He et al. 2015, arXiv:1512.03385, for the residual."""

    kind: Literal["skip"] = "skip"
    inner: Sublayer
    """The sublayer."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer adds to the residual."""

    @property
    def norm(self) -> None:
        """There is none."""


class Chain(Config):
    """`dropout(inner(x))`: what the sublayer gives takes the place of what it read, as in classic recurrent stacks.

    Source: Zaremba et al. 2014, §3.1, arXiv:1409.2329, for where the dropout stands.
    """

    kind: Literal["chain"] = "chain"
    inner: Sublayer
    """The sublayer."""
    dropout: Probability = 0.0
    """Dropout on what the sublayer gives."""

    @property
    def norm(self) -> None:
        """There is none."""


Residual = Annotated[PreNorm | PostNorm | SandwichNorm | Parallel | FromNorm | Skip | Chain,
                     Field(discriminator="kind")]
