"""Tokens to vectors as data: tables, clusters, characters, segments, languages and projections."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.attention_slots import NoPositions
from saucier.config.base import Config
from saucier.config.norms import Norm, Probability
from saucier.config.positions import EmbeddingPositions, Learned, Sinusoidal, SkipPadding


def cluster_sizes(cutoffs: tuple[int, ...], vocab: int) -> list[int]:
    """Return how many tokens each cluster holds; `cutoffs` are the ends of all but the last."""
    ends = (*cutoffs, vocab)
    return [end - start for start, end in zip((0, *cutoffs), ends, strict=True)]


class ProjectClusters(Config):
    """A table for each cluster of tokens, each narrower than the one before, and a map from each to `dim`.

    Source: Baevski and Auli 2019, §3, arXiv:1809.10853; Dai et al. 2019, code release.
    """

    kind: Literal["clusters"] = "clusters"
    width: int = Field(gt=0)
    """Width of the first cluster's table."""
    division: int = Field(default=4, gt=1)
    """Each table is narrower than the one before by this factor."""
    cutoffs: tuple[int, ...] = Field(min_length=1)
    """The first token of every cluster but the first; tokens are numbered by falling frequency."""

    def widths(self) -> list[int]:
        """Return the width of each cluster's table."""
        return [self.width // self.division**cluster for cluster in range(len(self.cutoffs) + 1)]


BYTES = 256
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(BYTES, BYTES + 5)
"""Characters behind the 256 bytes: they stand for a text's borders, around every token, and behind it."""
SYMBOLS = BYTES + 5
"""Rows of the table of characters."""
Positive = Annotated[int, Field(gt=0, le=2**20)]


class CharacterNetwork(Config):
    """Convolutions over a token's bytes, the largest value of each filter, highway layers, a map to the token's width.

    So every string has a vector, also one that no text had. Source: Peters et al. 2018 (ELMo), §3.4, arXiv:1802.05365;
    Jozefowicz et al. 2016, §3.1, arXiv:1602.02410; Kim et al. 2016, §2, arXiv:1508.06615. The sizes are those of
    ELMo's published options.json.
    """

    width: int = Field(default=16, gt=0)
    """Width of a character's vector."""
    filters: tuple[tuple[Positive, Positive], ...] = Field(
        default=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)), min_length=1)
    """How many characters a filter reads, and how many such filters there are."""
    highways: int = Field(default=2, ge=0, le=100)
    """Highway layers. Source: Srivastava et al. 2015, arXiv:1505.00387."""
    longest: int = Field(default=50, ge=3, le=10_000)
    """Characters of a token, the two around it included; more bytes than fit are not read."""

    @property
    def features(self) -> int:
        """Filters altogether."""
        return sum(count for _, count in self.filters)


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


class TablelessSegments(Config):
    """Segments without vectors of their own.

    - tokens: segments are tokens too, whose vectors come from the token table. Source: Radford et al. 2019,
    code release;
    - scores: nothing is added; segments enter the scores of attentions whose positions know them (`TransformerXL`).
      Source: Yang et al. 2019 (XLNet), §2.6, arXiv:1906.08237.
    """

    kind: Literal["tokens", "scores"]


Segments = Annotated[SegmentTable | FirstSegment | TablelessSegments, Field(discriminator="kind")]


class LanguageTable(Config):
    """One trained vector for each language that a token may be of; a batch without `langs` adds none.

    Source: Lample and Conneau 2019 (XLM), §3.1 and figure 1, arXiv:1901.07291.
    """

    count: int = Field(gt=0)
    """Number of languages."""


class ProjectNarrow(Config):
    """Narrow tables, and where their vectors are widened to `dim`.

    - tokens: token vectors, before positions are added. Source: Zhang et al. 2022 (OPT), arXiv:2205.01068;
    - trigram: the next token's vector, the token's own and the one before, side by side, before positions are added.
      Padding beside the last token is read like any token, as in the published models. Source: Sun et al. 2020
      (MobileBERT), §3.2, arXiv:2004.02984;
    - sum: all tables, when they are summed, before the norm. Source: He et al. 2021, arXiv:2006.03654;
    - normed: all tables, after norm and dropout. Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942;
    - undropped: all tables, after the norm, before dropout. Source: Lee-Thorp et al. 2022 (FNet), code release,
      arXiv:2105.03824.
    """

    kind: Literal["tokens", "trigram", "sum", "normed", "undropped"]
    width: int = Field(gt=0)
    """Width of the token table (tokens, trigram), or of all tables and of a norm that comes before."""
    bias: bool = True
    """Bias on the map to `dim`."""


class ProjectTwice(Config):
    """Token vectors of half the width, side by side with themselves: each direction of a model has its own copy.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365, where both directions read the same token vectors.
    """

    kind: Literal["twice"] = "twice"


EmbeddingProjection = Annotated[ProjectNarrow | ProjectClusters | ProjectTwice, Field(discriminator="kind")]


class Embedding(Config):
    """Tokens to vectors: table, optional positions and segments, norm, dropout."""

    vocab: int = Field(gt=0, le=2**31)
    """Number of tokens."""
    tied: bool = False
    """Use the source side's token table (the decoder's own embedding only). Source: Press and Wolf 2017, §3."""
    characters: CharacterNetwork | None = None
    """What makes token vectors of a token's characters; None: a table has one for each token."""
    projection: EmbeddingProjection | None = None
    """The map from narrower tables to `dim`; None: the tables are as wide as the model."""
    positions: EmbeddingPositions = NoPositions()
    """What is added to the token vectors for their place."""
    segments: Segments | None = None
    """What is added for the segment (token type) of each token."""
    languages: LanguageTable | None = None
    """What is added for the language of each token."""
    norm: Norm | None = None
    """The norm after the sum (BERT)."""
    dropout: Probability = 0.0
    """Dropout on the embedded tokens."""
    padding: int | None = Field(default=None, ge=0)
    """Id of the tokens that an encoder takes as padding where the batch gives no mask; None: all tokens are real."""
    scale: float = Field(default=1.0, gt=0)
    """Factor on the token vectors before positions are added (Vaswani et al.: the square root of `dim`)."""

    @property
    def first_position(self) -> int:
        """The published position of a text's first token, where offsets are not added inside the model."""
        match self.positions:
            case Learned(places=SkipPadding(padding=padding)) | Sinusoidal(places=SkipPadding(padding=padding)):
                return padding + 1
            case _:
                return 0

    def widths(self, dim: int) -> tuple[int, int]:
        """Return the width of the token table, and that of positions, segments and (where it comes before) the norm."""
        match self.projection:
            case None:
                return dim, dim
            case ProjectTwice():
                return dim // 2, dim // 2
            case ProjectNarrow(kind="sum" | "normed" | "undropped", width=width):
                return width, width
            case ProjectNarrow(width=width) | ProjectClusters(width=width):
                return width, dim

    def norm_width(self, dim: int) -> int:
        """Return the width of the norm, which may come before the projection."""
        last = self.projection is not None and self.projection.kind in ("normed", "undropped", "twice")
        return self.widths(dim)[1] if last else dim
