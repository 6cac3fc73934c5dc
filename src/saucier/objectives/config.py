"""What a model learns, as data: one frozen type for each objective. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Rate = Annotated[float, Field(ge=0, le=1)]


class EveryPosition(Config):
    """The next token is learned at every position. Source: Al-Rfou et al. 2019, §3.1, arXiv:1808.04444."""

    kind: Literal["every"] = "every"


class LastPosition(Config):
    """The next token is learned at the last position of a row alone, where the context is longest."""

    kind: Literal["last"] = "last"


class Deeper(Config):
    """What helps a deep stack to learn: predictions by layers inside it, and of tokens further ahead.

    Each has an output matrix of its own, which is not part of the finished model.
    Source: Al-Rfou et al. 2019, §3.2 and §3.3, arXiv:1808.04444.
    """

    intermediate: float | None = Field(default=0.5, gt=0, le=1)
    """Share of the training after which the last of the layers inside rests; the lower ones rest earlier, layer l of n
    after this share times l/n. None: they do not predict."""
    further: int = Field(default=1, ge=0)
    """How many tokens further ahead than the next one are predicted."""
    weight: float = Field(default=0.5, gt=0)
    """What the loss of a token further ahead counts."""


class Causal(Config):
    """Predict each next token from those before it. Source: Radford et al. 2018 (GPT), §3.1."""

    kind: Literal["causal"] = "causal"
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""
    positions: Annotated[EveryPosition | LastPosition, Field(discriminator="kind")] = EveryPosition()
    """Where the next token is learned; held-out text is measured in the same way."""
    deeper: Deeper | None = None
    """Losses beside the next token's, for deep stacks; None: there are none."""


class NextSentence(Config):
    """Tell whether the second half of a row follows the first.

    Source: Devlin et al. 2019, §3.1 task 2, arXiv:1810.04805.
    """

    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose second half is the true one."""


class Masked(Config):
    """Predict hidden tokens from both sides. Source: Devlin et al. 2019, §3.1 task 1, arXiv:1810.04805.

    Of the chosen tokens, `mask` become the mask token, `random` a random token, and the rest stay as they are.
    """

    kind: Literal["masked"] = "masked"
    rate: float = Field(default=0.15, gt=0, le=1)
    """Share of a row's ordinary tokens that are chosen as targets."""
    mask: Rate = 0.8
    random: Rate = 0.1
    dynamic: bool = True
    """True: new masks whenever a row comes again (Liu et al. 2019, RoBERTa, §4.1); False: one mask for ever."""
    next_sentence: NextSentence | None = None
    """Learn next-sentence prediction too; needs a `pretraining` head and segment embeddings."""


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


class SequenceToSequence(Config):
    """Predict the target from the source and the true target so far. Source: Vaswani et al. 2017, §3.1 and §5.4."""

    kind: Literal["sequence_to_sequence"] = "sequence_to_sequence"
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""
    truth: Annotated[TruthSchedule, Field(discriminator="kind")] | None = None
    """How often the decoder reads the true token instead of its own prediction (scheduled sampling); None: always."""


class SpanCorruption(Config):
    """Give back dropped spans, each named by a sentinel token.

    Source: Raffel et al. 2020 (T5), §3.1.4, arXiv:1910.10683.
    """

    kind: Literal["span_corruption"] = "span_corruption"
    rate: float = Field(default=0.15, gt=0, lt=1)
    """Share of a row's tokens that are dropped."""
    mean_span: float = Field(default=3.0, ge=1)
    """Mean length of a dropped span, in tokens."""


Single = Causal | Masked | SequenceToSequence | SpanCorruption
"""An objective that is learned alone, or as a part of a mixture."""


class MixturePart(Config):
    """One of the objectives that take turns."""

    weight: float = Field(default=1.0, gt=0)
    """How often it comes, relative to the others."""
    objective: Annotated[Single, Field(discriminator="kind")]
    """What is learned in its turn."""


class Mixture(Config):
    """Several objectives take turns; which one is learned in an update is drawn by weight.

    Source: Tay et al. 2023 (UL2), §3.1, arXiv:2205.05131, and Raffel et al. 2020, §3.5.2; there each row is drawn, here
    each update.
    """

    kind: Literal["mixture"] = "mixture"
    parts: tuple[MixturePart, ...] = Field(min_length=1)
    """The objectives and their weights."""


ObjectiveConfig = Annotated[Single | Mixture, Field(discriminator="kind")]


def singles(objective: Single | Mixture) -> tuple[Single, ...]:
    """Return the objectives that an objective is made of."""
    return tuple(part.objective for part in objective.parts) if isinstance(objective, Mixture) else (objective,)
