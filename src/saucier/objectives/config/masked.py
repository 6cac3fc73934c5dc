"""Hidden tokens, as data: how many, what stands in their place, what is learned beside them. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config

Rate = Annotated[float, Field(ge=0, le=1)]


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
