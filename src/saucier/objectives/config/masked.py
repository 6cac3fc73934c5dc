"""Masked language modelling, as data: which tokens are hidden together, what replaces them, what is learned with them,
in running text or in parallel texts. Needs no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.objectives.config.base import SingleObjective
from saucier.text.rows.kinds import MaskedRows, RowRequest, RunningRows, SegmentPairs


class RandomTokenMasking(Config):
    """Any tokens, each chosen by itself. Source: Devlin et al. 2019, §3.1, arXiv:1810.04805."""

    kind: Literal["tokens"] = "tokens"


class WholeWordMasking(Config):
    """All tokens of a chosen word. Source: Devlin et al. 2019, code release of 31 May 2019."""

    kind: Literal["whole_words"] = "whole_words"


class SpanBoundary(Config):
    """Tell each token of a hidden span from the two tokens around the span, too.

    Source: Joshi et al. 2020 (SpanBERT), §3.2, arXiv:1907.10529.
    """

    position_width: int = Field(default=200, gt=0)
    """Width of the embedding of a token's place in its span."""


class SpanMasking(Config):
    """Runs of whole words, their lengths drawn from a geometric distribution; one fate for all tokens of a run.

    Source: Joshi et al. 2020 (SpanBERT), §3.1, arXiv:1907.10529.
    """

    kind: Literal["spans"] = "spans"
    stop: float = Field(default=0.2, gt=0, le=1)
    """The distribution's p: how likely a span ends with each further word."""
    longest: int = Field(default=10, ge=1)
    """Words of the longest span; longer draws are drawn again."""
    boundary: SpanBoundary | None = None
    """Learn the span-boundary objective beside the hidden tokens."""


class NGramMasking(Config):
    """Runs of n whole words, n likely in proportion to 1/n.

    Source: Lan et al. 2020 (ALBERT), §4.1, arXiv:1909.11942.
    """

    kind: Literal["n_grams"] = "n_grams"
    longest: int = Field(default=3, ge=1)
    """Words of the longest run."""


class PMIMasking(Config):
    """Words that keep company are hidden together: n-grams that the training text makes likelier than their parts.

    Source: Levine et al. 2021, §3, arXiv:2010.01825.
    """

    kind: Literal["pmi"] = "pmi"
    longest: int = Field(default=5, ge=2, le=8)
    """Words of the longest n-gram."""
    least: int = Field(default=10, ge=2)
    """An n-gram must occur so often."""
    each: int = Field(default=200_000, gt=0)
    """At most so many n-grams of each length, those with the highest measure."""


Choice = Annotated[RandomTokenMasking | WholeWordMasking | SpanMasking | NGramMasking | PMIMasking,
                   Field(discriminator="kind")]

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


class Masked(SingleObjective):
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

    @property
    def rows_read(self) -> RowRequest:
        """Running text in BERT's frame, the same in every epoch where masks are; or sentences."""
        if isinstance(self.cut, RunningRows):
            return RowRequest("running", "segment", fixed=not self.dynamic)
        return RowRequest(self.cut.kind, real=1.0 if self.relation is None else self.relation.real,
                          wrong="swapped" if isinstance(self.relation, SentenceOrder) else "elsewhere")


class TranslationMasked(SingleObjective):
    """Predict tokens hidden in a text and in its translation, which stand in one row: translation language modelling.

    Source: Lample and Conneau 2019 (XLM), §3.4 and figure 1, arXiv:1901.07291.
    """

    kind: Literal["translation_masked"] = "translation_masked"
    masking: Masked = Masked()
    """Which tokens are hidden on both sides, and what stands in their place."""

    @property
    def rows_read(self) -> RowRequest:
        """Pairs, none without a side."""
        return RowRequest("text_pairs", whole=True)


class MaskedSides(SingleObjective):
    """Predict tokens hidden in the texts of pairs, each side a row of its own: what XLM learns in turns with TLM.

    Source: Lample and Conneau 2019 (XLM), §3.3 and §3.5, arXiv:1901.07291; there the texts are not those of the pairs.
    """

    kind: Literal["masked_sides"] = "masked_sides"
    masking: Masked = Masked()
    """Which tokens are hidden, and what stands in their place."""

    @property
    def rows_read(self) -> RowRequest:
        """Pairs, none without a side."""
        return RowRequest("text_pairs", whole=True)


Parallel = TranslationMasked | MaskedSides
"""Objectives that hide tokens in the texts of pairs."""
