"""Learning from pairs (a target written from a source), as data: sequence to sequence and conditional masked language
modelling. Needs no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.base import SingleObjective
from saucier.text.rows.kinds import RowRequest

Rate = Annotated[float, Field(ge=0, le=1)]


class LinearTruth(Config):
    """The chance of a true token falls by `slope` each step, to `floor`. Source: Bengio et al. 2015, §2.4."""

    kind: Literal["linear"] = "linear"
    start: float = Field(default=1.0, gt=0, le=1)
    """The chance at the first step."""
    slope: float = Field(gt=0)
    """How much it falls with each step."""
    floor: Rate = 0.0
    """The lowest chance."""


class ExponentialTruth(Config):
    """The chance of a true token is `base` to the power of the step. Source: Bengio et al. 2015, §2.4."""

    kind: Literal["exponential"] = "exponential"
    base: float = Field(gt=0, lt=1)


class InverseSigmoidTruth(Config):
    """The chance of a true token is k / (k + exp(step / k)). Source: Bengio et al. 2015, §2.4."""

    kind: Literal["inverse_sigmoid"] = "inverse_sigmoid"
    speed: float = Field(ge=1)
    """k: the larger, the later it falls."""


TruthSchedule = LinearTruth | ExponentialTruth | InverseSigmoidTruth


class ConditionalMasked(SingleObjective):
    """Predict hidden tokens of the target from the source and the tokens that are not hidden, and the target's length.

    Source: Ghazvininejad et al. 2019 (Mask-Predict), §2.2 and §3.1, arXiv:1904.09324.
    """

    kind: Literal["conditional_masked"] = "conditional_masked"
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of a hidden token's probability that is spread over the whole vocabulary."""
    length_token: str = "<length>"
    """The token that every source begins with, and whose vector tells the target's length."""

    @property
    def rows_read(self) -> RowRequest:
        """Pairs."""
        return RowRequest("text_pairs")


class FirstStage(Config):
    """At first only some parameters learn, then all: how BART learns to read another language by a new encoder.

    Source: Lewis et al. 2020, §3.4, arXiv:1910.13461.
    """

    share: float = Field(default=0.8, gt=0, le=1)
    """Share of the training's steps that it lasts."""
    learns: tuple[str, ...] = Field(default=("source", "embed.positions", "decoder_embed.positions",
                                             "encoder.blocks.0.attention.inner.qkv"), min_length=1)
    """The parameters that learn, by the beginnings of their names; the default is BART's: the new encoder, the tables
    of positions, and the map of queries, keys and values in the encoder's first block."""


class Packing(Config):
    """Several pairs of a batch in one row of each side, kept apart: the losses are those of the pairs alone."""

    length: int = Field(default=512, gt=0)
    """Tokens of a row on either side, at most."""


class SequenceToSequence(SingleObjective):
    """Predict the target from the source and the true target so far. Source: Vaswani et al. 2017, §3.1 and §5.4."""

    kind: Literal["sequence_to_sequence"] = "sequence_to_sequence"
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""
    truth: Annotated[TruthSchedule, Field(discriminator="kind")] | None = None
    """How often the decoder reads the true token instead of its own prediction (scheduled sampling); None: always."""
    first_stage: FirstStage | None = None
    """What learns at first, where not everything does from the start."""
    packing: Packing | None = None
    """How pairs share rows; None: each has a row of its own."""

    @property
    def rows_read(self) -> RowRequest:
        """Pairs."""
        return RowRequest("text_pairs")
