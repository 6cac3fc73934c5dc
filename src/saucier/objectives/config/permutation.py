"""Permutation language modelling, as data: how many tokens are predicted, and in which rows. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.objectives.config.base import SingleObjective
from saucier.text.rows.kinds import ConsecutiveRows, RowRequest, RunningText, TwoPieces


class Permutation(SingleObjective):
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

    @property
    def rows_read(self) -> RowRequest:
        """Two pieces of text, or rows of documents in BERT's frame."""
        if isinstance(self.rows, TwoPieces):
            return RowRequest("segment_pairs", real=self.rows.real)
        return RowRequest(self.rows.kind, "segment")
