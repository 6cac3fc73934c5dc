"""How a built model is changed for tuning, as data: a union told apart by `kind`. Needs no torch.

`where` in every member is a tuple of terms of the selection language of `saucier.adaptation.target_modules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.adaptation.quantization.schemes import NormalFloat, QuantizationAware
from saucier.config.base import Config
from saucier.config.blocks import MAX_LAYERS

Where = tuple[str, ...]
Positive = Annotated[int, Field(gt=0, le=2**20)]
"""As wide as a model may be, and no wider."""
Fraction = Annotated[float, Field(ge=0, lt=1)]


class ByRank(Config):
    """The change counts alpha / rank. Source: Hu et al. 2021, §4.1, arXiv:2106.09685."""

    kind: Literal["rank"] = "rank"

    def factor(self, alpha: float, rank: int) -> float:
        """Return what the product of the two matrices is multiplied by."""
        return alpha / rank


class ByRootOfRank(Config):
    """The change counts alpha / √rank ("rsLoRA"). Source: Kalajdzievski 2023, eq 4, arXiv:2312.03732."""

    kind: Literal["root_rank"] = "root_rank"

    def factor(self, alpha: float, rank: int) -> float:
        """Return what the product of the two matrices is multiplied by."""
        return float(alpha / rank**0.5)


Scaling = Annotated[ByRank | ByRootOfRank, Field(discriminator="kind")]


class Lora(Config):
    """Frozen maps plus products of two small matrices; the second starts at zero, so the model starts as it was.

    Source: Hu et al. 2021, §4, arXiv:2106.09685.
    """

    kind: Literal["lora"] = "lora"
    where: Where = ("query", "value")
    """Which maps get a pair of matrices; the default is the paper's."""
    rank: Positive = 8
    """Width between the two matrices."""
    alpha: float = Field(default=16.0, gt=0)
    """How much the change counts, divided as `scaling` says."""
    dropout: Fraction = 0.0
    """On what the pair reads, in training."""
    scaling: Scaling = ByRank()
    """What `alpha` is divided by."""
    train: Where = ()
    """Parameters that are trained whole beside the pairs, as `freeze` names them. New heads always are."""


class Qlora(Lora):
    """LoRA beside maps whose frozen weights are kept in four bits, and widened for each product.

    Source: Dettmers et al. 2023, §3, arXiv:2305.14314. Without the paper's paged optimizer.
    """

    kind: Literal["qlora"] = "qlora"  # type: ignore[assignment]  # told apart by it
    where: Where = ("linear",)
    """Which maps get a pair of matrices; the paper found all of them to be needed (§4)."""
    store: NormalFloat = NormalFloat()
    """How frozen weights are kept."""
    quantize: Where = ("linear",)
    """Which maps are kept in four bits."""


class Prefix(Config):
    """Trained keys and values before the text, in every self-attention of the stack that writes (or the only one).

    Source: Li and Liang 2021, §4, arXiv:2101.00190.
    """

    kind: Literal["prefix"] = "prefix"
    length: Positive = 16
    """Positions before the text."""
    hidden: Positive | None = None
    """Width of the network that makes them while they are trained, which is left out of what is saved; None: they are
    trained themselves."""
    train: Where = ()
    """Parameters that are trained whole beside it, as `freeze` names them. New heads always are."""


class FromVocabulary(Config):
    """Start from the vectors of tokens drawn from the first so many of the vocabulary.

    Source: Lester et al. 2021, §3.2, arXiv:2104.08691, which takes the 5,000 most common.
    """

    kind: Literal["vocabulary"] = "vocabulary"
    first: Positive = 5000
    """Ids are drawn below it; those of special tokens may be among them."""


class FromTokens(Config):
    """Start from the vectors of these tokens, again and again where they are fewer than the prompt is long."""

    kind: Literal["tokens"] = "tokens"
    ids: tuple[int, ...] = Field(min_length=1)
    """Ids of a text in the model's own tokenizer."""


class FromNoise(Config):
    """Start from random vectors. Source: Lester et al. 2021, §3.2."""

    kind: Literal["noise"] = "noise"
    reach: float = Field(default=0.5, gt=0)
    """Values are uniform between this and its opposite."""


class BeforeSource(Config):
    """Before the tokens that are read: the only ones of a model of one stack. Source: Lester et al. 2021, §2."""

    kind: Literal["source"] = "source"


class BeforeTarget(Config):
    """Before the tokens that a decoder writes beside an encoder."""

    kind: Literal["target"] = "target"


class BeforeBoth(Config):
    """Before both, each with vectors of its own."""

    kind: Literal["both"] = "both"


class Prompt(Config):
    """Trained vectors before the tokens of the input, of what is written, or of both.

    Source: Lester et al. 2021, §2, arXiv:2104.08691, which has them before the input.
    """

    kind: Literal["prompt"] = "prompt"
    length: Positive = 20
    """Vectors before the text; before each side, where both have some."""
    side: Annotated[BeforeSource | BeforeTarget | BeforeBoth, Field(discriminator="kind")] = BeforeSource()
    """Before which side of an encoder-decoder."""
    start: Annotated[FromVocabulary | FromTokens | FromNoise, Field(discriminator="kind")] = FromVocabulary()
    """What they begin as."""
    train: Where = ()
    """Parameters that are trained whole beside it, as `freeze` names them. New heads always are."""


class Houlsby(Config):
    """A bottleneck behind every sublayer. Source: Houlsby et al. 2019, §2.1 and fig 2, arXiv:1902.00751."""

    kind: Literal["houlsby"] = "houlsby"


class Pfeiffer(Config):
    """A bottleneck behind every feed-forward only. Source: Pfeiffer et al. 2021, §3.2 and fig 3, arXiv:2005.00247.

    As Houlsby's it stands before the residual is added; theirs reads behind the norm of blocks with post-norm.
    """

    kind: Literal["pfeiffer"] = "pfeiffer"


class Adapter(Config):
    """Bottlenecks behind sublayers: down, activation, up, added to what they read; they start as no change.

    Source: Houlsby et al. 2019, §2, arXiv:1902.00751.
    """

    kind: Literal["adapter"] = "adapter"
    width: Positive = 64
    """Of the bottleneck."""
    activation: Literal["gelu", "relu", "silu", "tanh"] = "gelu"
    """Between the two maps."""
    placement: Annotated[Houlsby | Pfeiffer, Field(discriminator="kind")] = Houlsby()
    """Behind which sublayers."""
    train: Where = ("norms",)
    """Parameters that are trained whole beside them, as `freeze` names them; the paper trains the norms (§2.1)."""


class Freeze(Config):
    """Some parameters stay as they are."""

    kind: Literal["freeze"] = "freeze"
    where: Where = ("embeddings",)
    """Which: roles, `embeddings`, `head`, `norms`, `biases`, or globs over the names of parameters."""
    lower: int = Field(default=0, ge=0, le=MAX_LAYERS)
    """So many of the first blocks of every stack, besides."""


class Bias(Config):
    """Only biases are trained ("BitFit"). Source: Ben Zaken et al. 2022, §3, arXiv:2106.10199."""

    kind: Literal["bias"] = "bias"
    train: Where = ()
    """Parameters that are trained whole beside them, as `freeze` names them. New heads always are."""


Tuning = Annotated[Lora | Qlora | Prefix | Prompt | Adapter | Freeze | Bias | QuantizationAware,
                   Field(discriminator="kind")]
"""What a model is tuned by."""
RATES = {"lora": 1e-3, "qlora": 1e-3, "prefix": 1e-2, "prompt": 1e-1, "adapter": 1e-3, "bias": 1e-3}
"""Kind of tuning -> a rate that suits what it adds, with AdamW: much higher than for a whole model."""
