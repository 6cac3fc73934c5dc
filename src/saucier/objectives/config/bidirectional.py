"""Next and previous tokens, as data. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from saucier import config as architecture
from saucier.config.base import Config
from saucier.objectives.config.single_objective import Mismatch, SingleObjective
from saucier.text.rows.kinds import RowRequest


class WholeSoftmax(Config):
    """Over the whole vocabulary."""

    kind: Literal["whole"] = "whole"


class SampledSoftmax(Config):
    """Over the right token and others that are drawn, the same for all targets of a batch, common ones most often.

    They come with P(k) = log((k + 2) / (k + 1)) / log(V + 1), where k counts ids from 0 (so ids stand by falling
    frequency), without repetition; each score is corrected by the logarithm of how often its token is expected.
    Source: Jean et al. 2015, §3.1, arXiv:1412.2007; Peters et al. 2018 (ELMo), published training code: 8192 of them.
    """

    kind: Literal["sampled"] = "sampled"
    samples: int = Field(default=8192, gt=0)
    """Tokens that are drawn; with as many as there are or more, the whole vocabulary is taken."""


Softmax = Annotated[WholeSoftmax | SampledSoftmax, Field(discriminator="kind")]
"""Over which tokens a loss is."""


class Bidirectional(SingleObjective):
    """Predict each token from those before it, and from those behind it; both losses count alike.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365 (C eq 13–15).
    """

    kind: Literal["bidirectional"] = "bidirectional"
    bodies: ClassVar[tuple[str, ...]] = ("encoder",)
    softmax: Softmax = WholeSoftmax()
    """Over which tokens the training loss is; what is measured is over all of them."""

    @property
    def rows_read(self) -> RowRequest:
        """Running text, its documents in a language model's frame."""
        return RowRequest("running", "document")

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Are the two directions kept apart?"""
        if not architecture.keeps_directions_apart(model):
            yield Mismatch(("kind",), "one direction would see what the other is to predict",
                           "use family: elmo, or an encoder of recurrent layers with direction: {kind: apart}",
                           own=True)

    def check_head(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Is there a head for both directions?"""
        if not isinstance(model.head, architecture.BidirectionalHead):
            yield Mismatch(("model", "head"), "bidirectional needs a head that reads both directions apart",
                           "use head: {kind: bidirectional}")
