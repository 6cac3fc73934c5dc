"""Which tokens are hidden together, as data. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


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
