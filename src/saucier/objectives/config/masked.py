"""Hidden tokens, as data: how many, what stands in their place, what is learned beside them. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.choices import Choice, RandomTokenMasking, SpanBoundary, SpanMasking
from saucier.objectives.config.sentence_rows import MaskedRows, RunningRows, SegmentPairs

Rate = Annotated[float, Field(ge=0, le=1)]


class NextSentence(Config):
    """Tell whether the second half of a row follows the first.

    Source: Devlin et al. 2019, §3.1 task 2, arXiv:1810.04805.
    """

    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose second half is the true one."""


class SentenceOrder(Config):
    """Tell whether the two halves of a row, which follow each other in the text, stand in their order.

    Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942.
    """

    real: float = Field(default=0.5, gt=0, lt=1)
    """Share of the rows whose halves are not swapped."""


class Masked(Config):
    """Predict hidden tokens from both sides. Source: Devlin et al. 2019, §3.1 task 1, arXiv:1810.04805.

    Of the chosen tokens, `mask` become the mask token, `random` a random token, and the rest stay as they are.
    """

    kind: Literal["masked"] = "masked"
    rate: float = Field(default=0.15, gt=0, lt=1)
    """Share of a row's ordinary tokens that are chosen as targets."""
    choice: Choice = RandomTokenMasking()
    """Which tokens are chosen together."""
    mask: Rate = 0.8
    random: Rate = 0.1
    dynamic: bool = True
    """True: new masks whenever a row comes again (Liu et al. 2019, RoBERTa, §4.1); False: the same for ever."""
    duplicates: int = Field(default=1, ge=1)
    """Where masks are not dynamic: how many each row has, one of them drawn whenever it comes (BERT's code has 10)."""
    rows: MaskedRows | None = None
    """How rows are cut from the text; None: segment pairs where sentences are learned, running rows elsewhere."""
    next_sentence: NextSentence | None = None
    """Learn next-sentence prediction too; needs a `pretraining` head and segment embeddings."""
    sentence_order: SentenceOrder | None = None
    """Learn sentence-order prediction too, in the place of the other."""

    @property
    def relation(self) -> NextSentence | SentenceOrder | None:
        """What is learned of the two halves of a row."""
        return self.next_sentence or self.sentence_order

    @property
    def boundary(self) -> SpanBoundary | None:
        """What is learned from the tokens around a hidden span."""
        return self.choice.boundary if isinstance(self.choice, SpanMasking) else None

    @property
    def cut(self) -> MaskedRows:
        """How rows are cut."""
        return self.rows or (RunningRows() if self.relation is None else SegmentPairs())
