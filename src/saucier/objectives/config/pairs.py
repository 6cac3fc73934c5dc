"""Learning from pairs (a target written from a source), as data: sequence to sequence and conditional masked language
modelling. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier import config as architecture
from saucier.config.base import Config
from saucier.config.questions import packs_pairs
from saucier.objectives.config.single_objective import Mismatch, ObjectiveSetting, SingleObjective, name_stacks
from saucier.text.config import Ready
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


SPECIAL_TOKEN_ORDER = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
"""Special tokens in the order of their ids."""
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

    def check_body(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model write whole texts?"""
        stacks = name_stacks(model)
        if stacks != "encoder and decoder" or not isinstance(model.head, architecture.LengthHead):
            yield self.report_wrong_body("encoder and decoder that writes whole texts", stacks)

    def check_text(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Does the head reach far enough, and do tokenizer and model agree on the tokens for lengths and masks?"""
        head, tokenizer = setting.model.head, setting.tokenizer
        if not isinstance(head, architecture.LengthHead):
            return  # check_body has said so
        if head.longest < setting.length:
            yield Mismatch(("model", "longest"), f"lengths are told up to {head.longest}, "
                           f"and targets have up to {setting.length}",
                           f"use longest: {setting.length}")
        special, token = tokenizer.special, self.length_token
        if special.mask is None:
            yield Mismatch(("tokenizer", "special", "mask"), f"{self.kind} needs a mask token", "name one: <mask>")
        if isinstance(tokenizer, Ready):
            return
        if token not in special.extra or not special.single.startswith(token):
            yield Mismatch(("tokenizer", "special", "single"), f"a source does not begin with {token}",
                           f"use extra: ['{token}'], single: '{token} $A </s>'")
        predicts = head.language.predicts
        number = sum(getattr(special, name) is not None for name in SPECIAL_TOKEN_ORDER[:-1])
        if isinstance(predicts, architecture.WholeText) and predicts.mask != number:
            yield Mismatch(("model", "mask"),
                           f"the model hides with token {predicts.mask}, and the mask token is {number}",
                           f"use mask: {number}")


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
    bodies: ClassVar[tuple[str, ...]] = ("decoder", "encoder and decoder")
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

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Can a decoder read its own predictions, and pairs share rows?"""
        if self.truth is not None and model.encoder is None:
            yield Mismatch(("truth",), "only an encoder-decoder reads its own predictions in training",
                           "leave it out, or use such a model", own=True)
        elif self.packing is not None:
            if not packs_pairs(model):
                yield Mismatch(("packing",),
                               "only the two sides of softmax attention over the order of places keep pairs apart",
                               "leave it out, or use an encoder-decoder such as T5 or BART", own=True)
            if self.truth is not None:
                yield Mismatch(("packing",), "a decoder that reads its own predictions has one pair in a row",
                               "leave packing or truth out", own=True)
