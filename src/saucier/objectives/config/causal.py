"""Next tokens, as data: at which positions they are learned, from which rows, and auxiliary predictions for deep
stacks. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier import config as architecture
from saucier.config.base import Config
from saucier.objectives.config.single_objective import Mismatch, SingleObjective
from saucier.text.rows.kinds import ConsecutiveRows, DocumentRows, RowRequest, ShuffledRows


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


class Causal(SingleObjective):
    """Predict each next token from those before it. Source: Radford et al. 2018 (GPT), §3.1."""

    kind: Literal["causal"] = "causal"
    bodies: ClassVar[tuple[str, ...]] = ("decoder",)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""
    positions: Annotated[EveryPosition | LastPosition, Field(discriminator="kind")] = EveryPosition()
    """Where the next token is learned; held-out text is measured in the same way."""
    rows: Annotated[ShuffledRows | DocumentRows | ConsecutiveRows, Field(discriminator="kind")] = ShuffledRows()
    """Where rows are cut, and which follow which."""
    deeper: Deeper | None = None
    """Losses beside the next token's, for deep stacks; None: there are none."""

    @property
    def rows_read(self) -> RowRequest:
        """Rows of documents in a language model's frame."""
        return RowRequest("running" if self.rows.kind == "shuffled" else self.rows.kind, "document")

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Is there a token for each prediction?"""
        if isinstance(self.positions, LastPosition) and self.deeper is not None and self.deeper.further:
            yield Mismatch(("deeper", "further"), "no token stands behind the last position of a row",
                           "set it to 0, or positions to {kind: every}", own=True)

    @property
    def reads_all(self) -> bool:
        """Whether every token of a text is predicted once, so that its bytes may be divided by."""
        return isinstance(self.positions, EveryPosition)
