"""How the weights of a model are kept in few bits, as data: number formats, methods, activations. Needs no torch.

Letters of sizes: O outputs (rows), I inputs, G groups of a row.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Places = tuple[str, ...]
"""Terms of the selection language of `saucier.adaptation.target_modules`."""
Count = Annotated[int, Field(gt=0, le=2**20)]
ScaleFormat = Literal["float32", "float16", "bfloat16"]


class Symmetric(Config):
    """Codes from -M to M, M = 2^(bits - 1) - 1; the scale is the largest value / M. Source: C eq 61."""

    kind: Literal["symmetric"] = "symmetric"


class ZeroPoint(Config):
    """Codes from 0 to 2^bits - 1; one of them, a whole number, stands for zero.

    Source: Jacob et al. 2018, §2.1, eq 1, arXiv:1712.05877.
    """

    kind: Literal["zero_point"] = "zero_point"


class Integers(Config):
    """Whole numbers of few bits times a scale: `scale * (code - zero)`, in groups along the inputs or a row at a time.
    """

    kind: Literal["integer"] = "integer"
    bits: int = Field(default=8, ge=2, le=8)
    """Bits of a weight."""
    group: Count | None = None
    """Inputs that share a scale; None: all of a row. The last group of a row may be shorter."""
    range: Annotated[Symmetric | ZeroPoint, Field(discriminator="kind")] = Symmetric()
    """Where the codes lie."""
    scales: ScaleFormat = "float32"
    """Number format of the scales."""


class IndexedIntegers(Config):
    """Whole numbers of few bits whose groups are named input by input: `scale * (code - zero)` of an input's group.

    How GPTQ's folders hold "act-order" (`desc_act`, with `g_idx` out of order). Folders are read so; nothing is rounded
    to it here. Source: code release of Frantar et al. 2022, arXiv:2210.17323.
    """

    kind: Literal["indexed_integer"] = "indexed_integer"
    bits: int = Field(ge=2, le=8)
    """Bits of a weight."""
    groups: Count
    """Groups of a row."""
    range: Annotated[Symmetric | ZeroPoint, Field(discriminator="kind")]
    """Where the codes lie."""
    scales: ScaleFormat
    """Number format of the scales."""


class NormalFloat(Config):
    """Four bits a weight: levels at the quantiles of a normal distribution, scaled in blocks by the largest value.

    The scales are kept as 8-bit floats, in blocks of their own. Source: Dettmers et al. 2023, §3, arXiv:2305.14314.
    """

    kind: Literal["nf4"] = "nf4"
    block: Annotated[int, Field(gt=0, le=2**20, multiple_of=2)] = 64
    """Weights that share a scale."""
    scale_block: Count = 256
    """Scales that share a scale of their own."""


class LearnedBasis(Config):
    """Sums of a few learned numbers, each added or subtracted: `Σ_k ±v_k`, so the bits of a code are signs.

    Source: Zhang et al. 2018 (LQ-Nets), §3.1, arXiv:1807.10029 (C eq 56–57).
    """

    kind: Literal["learned_basis"] = "learned_basis"
    bits: int = Field(default=3, ge=1, le=4)
    """Numbers of the basis, and so bits of a weight."""
    rounds: Annotated[int, Field(gt=0, le=1000)] = 20
    """Alternations between codes and basis (QEM, algorithm 1)."""


NumberFormat = Annotated[Integers | NormalFloat | LearnedBasis, Field(discriminator="kind")]
"""How the numbers of a matrix are kept."""
StoredFormat = Annotated[Integers | NormalFloat | LearnedBasis | IndexedIntegers, Field(discriminator="kind")]
"""How those of a folder may be."""


class Nearest(Config):
    """Every weight becomes the nearest number of its format. Needs no text."""

    kind: Literal["nearest"] = "nearest"


class Gptq(Config):
    """Column by column; what a column loses is made up for by those that are still to come.

    Layer after layer, on what the quantized layers before give for the calibration text.
    Source: Frantar et al. 2022, §3, algorithm 1, arXiv:2210.17323.
    """

    kind: Literal["gptq"] = "gptq"
    damping: float = Field(default=0.01, gt=0, le=1)
    """Added to the diagonal of the Hessian, as a share of its mean (§3.3, step 3)."""
    block: Count = 128
    """Columns whose updates of the rest are put off and done at once (§3.3, step 2). It changes no number."""
    order: Literal["inputs", "largest_first"] = "inputs"
    """Columns as they are, or those of the largest inputs first, whose groups then have the scales of the plain weights
    ("act-order", the authors' code release)."""


class Awq(Config):
    """Inputs that matter get finer steps: each input of a map is scaled up, and what gives it is scaled down.

    The scale is a power of the input's mean size; the power is searched on a grid for the least error of the map's
    output. Source: Lin et al. 2023, §3.2, eq 4–5, arXiv:2306.00978. The error is of each map's own output, where their
    code release takes the output of the block.
    """

    kind: Literal["awq"] = "awq"
    grid: Annotated[int, Field(gt=0, le=1000)] = 20
    """Powers tried, from 0."""
    clip: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """By up to how much the range of a group is narrowed where that lowers the error; 0: not at all."""
    tokens: Count = 512
    """Tokens of the calibration text that the errors are measured on."""


Method = Annotated[Nearest | Gptq | Awq, Field(discriminator="kind")]
"""How codes are found."""


class DynamicInt8(Config):
    """What a map reads is rounded to -127 … 127, with a scale of its own for each token."""

    kind: Literal["dynamic"] = "dynamic"


class StaticInt8(Config):
    """The same with one scale for a map: the largest input that it had on the calibration text, / 127."""

    kind: Literal["static"] = "static"


Activations = Annotated[DynamicInt8 | StaticInt8, Field(discriminator="kind")]
"""How the inputs of linear maps are rounded."""


class Override(Config):
    """Other bits for some maps: what mixed precision is made of."""

    where: Places
    """Which maps."""
    format: NumberFormat
    """How their weights are kept."""


class Quantization(Config):
    """A model whose linear maps and tables hold numbers of few bits; norms and biases stay as they are."""

    kind: Literal["quantization"] = "quantization"
    where: Places = ("*",)
    """Which linear maps: roles, names or globs, `!` before a term takes maps out. The default is every one."""
    format: NumberFormat = Integers()
    """How the weights of maps are kept."""
    overrides: tuple[Override, ...] = ()
    """Maps that are kept otherwise; of several that mean a map the last one counts."""
    embeddings: NumberFormat | None = Integers()
    """How the tables of tokens, positions and segments are kept, and the output layer over the vocabulary; None: as
    they are. A tied output layer shares the table's numbers."""
    method: Method = Nearest()
    """How codes are found; for tables always the nearest."""
    activations: Activations | None = None
    """How the inputs of maps are rounded; None: not at all. Maps alone, not the output layer over the vocabulary."""


class QuantizationAware(Config):
    """Training that knows of int8: weights, tables and inputs are rounded in the forward pass and learn all the same.

    The gradient passes the rounding as if it were not there (straight-through); the range of inputs is a running mean
    of their largest value, which is frozen late. All of it is done in float32, whatever the products are done in. What
    is opened or merged afterwards is an int8 model with static ranges that gives the same numbers.
    Source: Zafrir et al. 2019 (Q8BERT), §2, eq 1–4, arXiv:1910.06188 (C eq 61).
    """

    kind: Literal["quantization_aware"] = "quantization_aware"
    where: Places = ("*",)
    """Which linear maps."""
    bits: int = Field(default=8, ge=2, le=8)
    """Bits of weights; tables and inputs have 8."""
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """Of the running mean. The paper does not say its own."""
    freeze: Count | None = None
    """Training steps after which ranges stay as they are; None: they never do while training goes on."""


StoredPart = Literal["map", "table", "positions", "output"]


class StoredMatrix(Config):
    """How one matrix of a folder is stored: an entry of `quantization.modules` in its config."""

    part: StoredPart
    """What holds it: a linear map, a table of vectors or of positions, an output layer over the vocabulary."""
    shape: tuple[Annotated[int, Field(gt=0, le=2**31)], Annotated[int, Field(gt=0, le=2**31)]]
    """Outputs and inputs, or rows and their width."""
    format: StoredFormat
    """How its numbers are kept."""
    activations: Activations | None = None
    """How a map's inputs are rounded."""
    method: str = Field(default="nearest", max_length=40)
    """How the codes were found."""


class StoredQuantization(Config):
    """What `quantization` in the config of a folder in our own layout holds."""

    format: Literal[1]
    """Raised when the storage changes in a way that older readers cannot read."""
    modules: dict[str, StoredMatrix]
    """Dotted name of a module -> how its matrix is stored."""
