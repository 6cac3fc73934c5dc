"""The segments and the languages of tokens as data: what an embedding adds for them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class OneSegment(Config):
    """Every token belongs to the first segment."""

    kind: Literal["one"] = "one"


class AfterToken(Config):
    """Tokens behind a row's first `token` belong to the second segment, or all but its first where it has none.

    Source: Zaheer et al. 2020, code release, for questions and their texts.
    """

    kind: Literal["after_token"] = "after_token"
    token: int = Field(ge=0)
    """Id of the token that ends the first segment."""


class SegmentTable(Config):
    """One trained vector for each segment (token type). Source: Devlin et al. 2019, §3, arXiv:1810.04805."""

    kind: Literal["table"] = "table"
    count: int = Field(default=2, gt=0)
    """Number of segments."""
    otherwise: Annotated[OneSegment | AfterToken, Field(discriminator="kind")] = OneSegment()
    """The segments of a batch that gives none."""


class FirstSegment(Config):
    """A table of segments of which every token gets the first vector, whatever segment the batch says.

    Source: Karpukhin et al. 2020 (DPR), code release: its reader was trained so.
    """

    kind: Literal["first"] = "first"
    count: int = Field(default=2, gt=0)
    """Number of segments."""


class SegmentTokens(Config):
    """Segments are tokens too: their vectors come from the token table. Source: Radford et al. 2019, code release."""

    kind: Literal["tokens"] = "tokens"


class SegmentScores(Config):
    """Nothing is added: segments enter the scores of attentions whose positions know them (`TransformerXL`).

    Source: Yang et al. 2019 (XLNet), §2.6, arXiv:1906.08237.
    """

    kind: Literal["scores"] = "scores"


Segments = Annotated[SegmentTable | FirstSegment | SegmentTokens | SegmentScores, Field(discriminator="kind")]


class LanguageTable(Config):
    """One trained vector for each language that a token may be of; a batch without `langs` adds none.

    Source: Lample and Conneau 2019 (XLM), §3.1 and figure 1, arXiv:1901.07291.
    """

    count: int = Field(gt=0)
    """Number of languages."""
