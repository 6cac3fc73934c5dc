"""Permutation language modelling, as data: how many tokens are predicted, and in which rows. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier import config as architecture
from saucier.objectives.config.single_objective import Mismatch, SingleObjective
from saucier.text.rows.kinds import ConsecutiveRows, RowRequest, RunningText, TwoPieces


class Permutation(SingleObjective):
    """Predict the last tokens of a random order from those before them in it. Source: Yang et al. 2019, §2.2–2.3.

    Targets are short spans, as in the published code; what is no target comes first in the order, and all of it sees
    each other. The code draws one order for each half of a row; here there is one for all of it.
    """

    kind: Literal["permutation"] = "permutation"
    bodies: ClassVar[tuple[str, ...]] = ("encoder",)
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

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Is there a second stream to ask with, and a memory where one is read?"""
        stack = model.encoder
        assert stack is not None, "asked of encoders"
        attentions = [one.inner for block in stack.blocks() for one in block.sublayers
                      if isinstance(one.inner, architecture.SelfAttention)]
        if stack.queries is None or not all(architecture.hides_keys(one.visibility) for one in attentions):
            yield Mismatch(("kind",),
                           "permutation needs a second stream of queries, and attention that hides keys from some",
                           "use family: xlnet, or encoder.queries and visibility kind: permutation", own=True)
        memory = self.rows.memory if isinstance(self.rows, RunningText) else None
        kept = 0 if stack.memory is None else stack.memory.length
        if memory is not None and kept is not None and memory > kept:
            yield Mismatch(("rows", "memory"), f"the model remembers {kept} tokens, and not {memory}",
                           f"use {kept or 'null'}, or a longer memory (model.memory={memory})", own=True)
        if isinstance(self.rows, TwoPieces) and model.embed.segments is None:
            yield Mismatch(("rows", "kind"), "the model does not tell two pieces of text apart", "use kind: running",
                           own=True)
