"""How a model is trained, as data: steps, batch, optimizer, schedule, precision, saving. Needs no torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.config.norms import Probability
from saucier.config.registry import OpenSlot
from saucier.config.stack import Activations

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class AdamW(Config):
    """Adam with decoupled weight decay, on matrices only. Source: Loshchilov and Hutter 2019, arXiv:1711.05101."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    """The highest rate, reached after warm-up."""
    beta1: Fraction = 0.9
    """Share of the old mean that a step keeps."""
    beta2: Fraction = 0.95
    """Share of the old mean square that a step keeps."""
    eps: float = Field(default=1e-8, gt=0)
    """Added to the root of the mean square."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Not applied to norms, biases and embeddings."""


class Muon(Config):
    """Orthogonalized momentum for the matrices inside blocks; AdamW for all else.

    Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon; the step is scaled to the size of AdamW's, so that
    rates carry over (Liu et al. 2025, §2.2, arXiv:2502.16982).
    """

    kind: Literal["muon"] = "muon"
    learning_rate: float = Field(default=3e-3, gt=0)
    """The highest rate of the orthogonalized matrices."""
    momentum: Fraction = 0.95
    """Share of the old momentum that a step keeps."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Of the orthogonalized matrices."""
    dtype: Literal["auto"] | None = None
    """Number format in which steps are orthogonalized. auto: bfloat16 where the device multiplies it faster, and
    otherwise that of the gradients, which is many times faster there. None: always bfloat16, as earlier runs."""
    others: AdamW = AdamW()
    """For embeddings, heads, norms and biases."""


class Adafactor(Config):
    """Second moments kept as row and column sums: little memory. Source: Shazeer and Stern 2018, arXiv:1804.04235."""

    kind: Literal["adafactor"] = "adafactor"
    learning_rate: float = Field(default=1e-2, gt=0)
    """Relative to the size of each weight (§8 of the paper)."""
    beta2_decay: float = Field(default=-0.8, lt=0)
    """Exponent of the step in what the second moments keep (§7.2 of the paper)."""
    threshold: float = Field(default=1.0, gt=0)
    """Root mean square above which an update is clipped (§6 of the paper)."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Not applied to norms, biases and embeddings."""


OptimizerConfig = Annotated[AdamW | Muon | Adafactor, Field(discriminator="kind")]


class Cosine(Config):
    """Half a cosine from the highest rate down to `final` of it. Source: Loshchilov and Hutter 2017, §3."""

    kind: Literal["cosine"] = "cosine"
    warmup: int = Field(default=0, ge=0)
    """Steps over which the rate rises linearly from zero; so in every schedule."""
    final: float = Field(default=0.1, ge=0, le=1)


class Linear(Config):
    """A straight line from the highest rate down to `final` of it. Source: Devlin et al. 2019, appendix A.2."""

    kind: Literal["linear"] = "linear"
    warmup: int = Field(default=0, ge=0)
    """Steps over which the rate rises linearly from zero."""
    final: float = Field(default=0.0, ge=0, le=1)


class Polynomial(Config):
    """A power of what is left, from the highest rate down to `final` of it. Source: Beltagy et al. 2020, §5."""

    kind: Literal["polynomial"] = "polynomial"
    power: float = Field(default=3.0, gt=0)
    """1 is a straight line; a larger one falls fast and then slowly."""
    warmup: int = Field(default=0, ge=0)
    """Steps over which the rate rises linearly from zero."""
    final: float = Field(default=0.0, ge=0, le=1)


class InverseSquareRoot(Config):
    """Falls as one over the square root of the step. Source: Vaswani et al. 2017, §5.3.

    The paper's rate is this one with a highest rate of `(dim * warmup) ** -0.5`.
    """

    kind: Literal["inverse_square_root"] = "inverse_square_root"
    warmup: int = Field(default=4000, gt=0)
    """Steps over which the rate rises linearly from zero."""


class Constant(Config):
    """The same rate all along; `cooldown` lets it fall linearly to zero at the end.

    Source: Hägele et al. 2024, §3, arXiv:2405.18392.
    """

    kind: Literal["constant"] = "constant"
    warmup: int = Field(default=0, ge=0)
    """Steps over which the rate rises linearly from zero."""
    cooldown: int = Field(default=0, ge=0)
    """Last steps over which the rate falls to zero."""


ScheduleConfig = Annotated[Cosine | Linear | Polynomial | InverseSquareRoot | Constant, Field(discriminator="kind")]


class LayerRates(Config):
    """Lower blocks learn more slowly: the head at the full rate, each block at `factor` of what is above it.

    Source: Howard and Ruder 2018, §3.2, "discriminative fine-tuning", arXiv:1801.06146.
    """

    factor: float = Field(default=1 / 2.6, gt=0, le=1)
    """The paper's by default, which was found for three layers; for twelve 0.8 to 0.95 is usual."""


class WeightsAndBiases(Config):
    """The figures of a run, for Weights & Biases (`pip install 'saucier[wandb]'`)."""

    kind: Literal["wandb"] = "wandb"
    project: str = Field(default="saucier", min_length=1)
    """The project that the run appears in."""
    name: str | None = None
    """What the run is called there; None: as its folder."""
    mode: Literal["offline", "online"] = "offline"
    """offline: into the run folder, and `wandb sync` sends it later; online: at once."""


class MLflow(Config):
    """The figures of a run, for MLflow (`pip install 'saucier[mlflow]'`)."""

    kind: Literal["mlflow"] = "mlflow"
    experiment: str = Field(default="saucier", min_length=1)
    """The experiment that the run belongs to."""
    name: str | None = None
    """What the run is called there; None: as its folder."""
    tracking: str | None = None
    """Address of the tracking server or database; None: `mlflow.db` in the run folder."""


class CustomReporter(Config):
    """The slot of a reporter from outside.

    A new one is a subclass with its own `kind`, registered with what builds, from (config, `ReportedRun`), a
    `Reporter`.
    """

    slot: ClassVar[str] = "reporter"
    """What `register` knows the slot by."""
    kind: str


ReporterConfig = Annotated[WeightsAndBiases | MLflow | CustomReporter, OpenSlot("reporter")]
"""Where the figures of a run go, in addition to the screen and its folder."""


class Training(Config):
    """One run of the loop."""

    steps: Positive
    """Updates of the weights."""
    batch: Positive = 16
    """Rows in one update, over all micro-batches and processes. Batches cut by token count have as many rows as fit."""
    micro_batch: Positive | None = None
    """Rows in one forward pass; None: the whole share of a process. Does not change what is learned."""
    length: Positive = 256
    """Tokens in a row, as the model sees them."""
    optimizer: OptimizerConfig = AdamW()
    """How gradients become updates."""
    seconds: float | None = Field(default=None, gt=0)
    """Stop after so much time, evaluations included, if the steps are not done before; None: never. The schedule then
    ends with the time, foreseen from the pace so far. Such a run is not a pure function of its recipe."""
    schedule: ScheduleConfig = Cosine()
    """How the rate changes over the steps."""
    layer_rates: LayerRates | None = None
    """Rates that fall from the head down; None: the same for all."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient; None: no limit. Source: Pascanu et al. 2013, §3.2, arXiv:1211.5063."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the multiplications; weights are always kept in float32. auto: bfloat16 where it is faster."""
    layer_drop: Probability | None = None
    """Each layer is left out of an update with this probability; None: as the model's config says. The saved config
    does not change. With r layers of N to be left 1 - r / N is ideal. Source: Fan et al. 2020, §3.2, arXiv:1909.11556.
    """
    activations: Activations = Activations(kind="keep")
    """What of a forward pass is kept for the backward pass; does not change what is learned."""
    compile: bool = False
    """Compile the model with torch.compile: slower to start, faster on a GPU."""
    evaluate_every: Positive = 500
    """Steps between evaluations on held-out text; there is one more after the last step."""
    save_every: Positive | None = None
    """Steps between checkpoints; None: with every evaluation."""
    keep: Positive = 2
    """Newest checkpoints kept; the best one is kept besides."""
    average: Positive = 1
    """At the end, average the weights of this many newest checkpoints. Source: Vaswani et al. 2017, §6.1."""
    patience: Positive | None = None
    """Stop after so many evaluations without a better one; None: never."""
    log_every: Positive = 20
    """Steps between lines in metrics.jsonl and, without a terminal, on the screen."""
    events: Literal["auto", "on", "off"] = "auto"
    """TensorBoard events in the run folder; auto: where tensorboard is installed."""
    reporters: tuple[ReporterConfig, ...] = ()
    """Where else the figures go."""
    seed: int = Field(default=0, ge=0)
    """Feeds the order of the data, the corruption and the dropout."""
