"""Permutation language modelling, as data: how many tokens are predicted, and in which rows. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.order import ConsecutiveRows


class RunningText(Config):
    """Rows of running text, with what stood before them as a memory, if it is asked for: read anew for each row."""

    kind: Literal["running"] = "running"
    memory: int | None = Field(default=None, gt=0)
    """Tokens before a row that are read into the model's memory first, without a gradient; None: none."""


class TwoPieces(Config):
    """Rows of two pieces of text with a separator behind each and the classification token last.

    Nothing is learned of whether they belong together. Source: Yang et al. 2019, §2.5, arXiv:1906.08237.
    """

    kind: Literal["two_pieces"] = "two_pieces"
    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose second piece is the true one."""


class Permutation(Config):
    """Predict the last tokens of a random order from those before them in it. Source: Yang et al. 2019, §2.2–2.3.

    Targets are short spans, as in the published code; what is no target comes first in the order, and all of it sees
    each other. The code draws one order for each half of a row; here there is one for all of it.
    """

    kind: Literal["permutation"] = "permutation"
    every: int = Field(default=6, ge=2)
    """One token in so many is predicted (K). Source: Yang et al. 2019, §2.3, "partial prediction"."""
    longest: int = Field(default=5, ge=1)
    """The most tokens of a span; n have a probability in proportion to 1/n (the code counts words)."""
    rows: Annotated[RunningText | ConsecutiveRows | TwoPieces, Field(discriminator="kind")] = RunningText()
    """What a row is."""
