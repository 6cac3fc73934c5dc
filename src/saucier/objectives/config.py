"""What a model learns, as data: one frozen type for each objective. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Rate = Annotated[float, Field(ge=0, le=1)]


class Causal(Config):
    """Predict each next token from those before it. Source: Radford et al. 2018 (GPT), §3.1."""

    kind: Literal["causal"] = "causal"
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""


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


class SequenceToSequence(Config):
    """Predict the target from the source and the true target so far. Source: Vaswani et al. 2017, §3.1 and §5.4."""

    kind: Literal["sequence_to_sequence"] = "sequence_to_sequence"
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""


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
