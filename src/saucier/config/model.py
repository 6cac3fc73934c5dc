"""A whole model as data: embedding, stacks of blocks, head, and the single `Transformer` that holds them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.adaptive import AdaptiveHead, ProjectClusters
from saucier.config.base import Config
from saucier.config.bottleneck import Bottleneck
from saucier.config.characters import CharacterNetwork
from saucier.config.heads import (
    BidirectionalHead,
    DoubleHead,
    EmbeddingHead,
    Head,
    LanguageHead,
    LengthHead,
    NextToken,
    Pooler,
    PretrainingHead,
)
from saucier.config.initialization import Initialization, NormalInit
from saucier.config.layer_mix import LayerMix
from saucier.config.layers import Norm, Probability, Residual, SelfAttention
from saucier.config.neighbours import Convolution
from saucier.config.positions import EmbeddingPositions, Learned, NoPositions, Sinusoidal, SkipPadding
from saucier.config.recurrence import QueryVector, SegmentMemory
from saucier.config.segments import AfterToken as AfterToken
from saucier.config.segments import FirstSegment as FirstSegment
from saucier.config.segments import LanguageTable as LanguageTable
from saucier.config.segments import OneSegment as OneSegment
from saucier.config.segments import Segments
from saucier.config.segments import SegmentScores as SegmentScores
from saucier.config.segments import SegmentTable as SegmentTable
from saucier.config.segments import SegmentTokens as SegmentTokens
from saucier.config.streams import OneStream, Reversible
from saucier.config.targets import DefaultTarget

MAX_LAYERS = 10_000
"""More layers than any real model has: a hostile file cannot make us build for hours."""


class Block(Config):
    """Sublayers one after the other, each inside its own residual."""

    sublayers: tuple[Residual, ...] = Field(min_length=1)
    """In the order they are applied."""
    bottleneck: Bottleneck | None = None
    """What narrows the stream inside the block (MobileBERT)."""

    def width(self, dim: int) -> int:
        """Return the width of the stream inside the block."""
        return dim if self.bottleneck is None else self.bottleneck.width


class Repeat(Config):
    """The same block `times` times, each with weights of its own."""

    kind: Literal["repeat"] = "repeat"
    block: Block
    """The block that every layer has."""
    times: int = Field(gt=0, le=MAX_LAYERS)


class Cycle(Config):
    """Different blocks in turn, the whole turn `times` times, each with weights of its own."""

    kind: Literal["cycle"] = "cycle"
    blocks: tuple[Block, ...] = Field(min_length=1)
    """One turn, in order."""
    times: int = Field(gt=0, le=MAX_LAYERS)


class Share(Config):
    """`times` layers that share weights: all of them, or those of a group; a layer is one block or several.

    Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942; groups and inner blocks from its code release.
    """

    kind: Literal["share"] = "share"
    block: Block
    """What every block is."""
    times: int = Field(gt=0, le=MAX_LAYERS)
    groups: int = Field(default=1, gt=0, le=MAX_LAYERS)
    """Sets of weights; the first layers use the first, and so on in equal parts."""
    inner: int = Field(default=1, gt=0, le=100)
    """Blocks in a layer, each with weights of its own."""

    def order(self) -> list[int]:
        """Return for each block that is applied the number of the weights that it uses, from 0."""
        groups = [int(layer / (self.times / self.groups)) for layer in range(self.times)]
        return [group * self.inner + place for group in groups for place in range(self.inner)]


Layers = Annotated[Repeat | Cycle | Share, Field(discriminator="kind")]


class Stack(Config):
    """The blocks of an encoder or of a decoder, and the norm after the last one."""

    layers: Layers
    """How the blocks are laid out."""
    residual: Annotated[OneStream | Reversible, Field(discriminator="kind")] = OneStream()
    """What the sublayers add to."""
    layer_positions: Learned | None = None
    """Tables of positions, one for each block, added to what the block reads.

    Source: Al-Rfou et al. 2019, §3.4, arXiv:1808.04444."""
    convolution: Convolution | None = None
    """What stands beside the first block (DeBERTa-v2)."""
    final_norm: Norm | None = None
    """The norm after the last block (pre-norm stacks need one)."""
    narrow: int | None = Field(default=None, gt=0)
    """Width that a last map without bias takes the output to; None: there is no such map (OPT-350M has one)."""
    dropout: Probability = 0.0
    """Dropout on the stack's output (T5)."""
    memory: SegmentMemory | None = None
    """What is kept from one segment of a text to the next (Transformer-XL)."""
    queries: QueryVector | None = None
    """The second stream (XLNet)."""
    tied: bool = False
    """Use the encoder's maps and norms, not its tables of positions (the decoder only). Source: Raffel 2020, §3.2.2."""
    zero_padding: bool = False
    """Whether the vectors of padding are zero before the first block and after every one (XLM)."""

    def stream_width(self, dim: int) -> int:
        """Return the width of the vectors behind the last block."""
        return 2 * dim if isinstance(self.residual, Reversible) else dim

    def width(self, dim: int) -> int:
        """Return the width of the vectors that the stack gives."""
        return self.narrow or self.stream_width(dim)

    def blocks(self) -> list[Block]:
        """Return the blocks in the order they are applied, shared ones repeated."""
        match self.layers:
            case Repeat(block=block, times=times):
                return [block] * times
            case Share(block=block, times=times, inner=inner):
                return [block] * (times * inner)
            case Cycle(blocks=blocks, times=times):
                return list(blocks) * times

    def attentions(self) -> list[SelfAttention]:
        """Return the self-attentions in the order they are applied."""
        return [inner for block in self.blocks() for residual in block.sublayers
                if isinstance(inner := residual.inner, SelfAttention)]


class ProjectTokens(Config):
    """Narrow token vectors, widened before positions are added. Source: Zhang et al. 2022 (OPT), arXiv:2205.01068."""

    kind: Literal["tokens"] = "tokens"
    width: int = Field(gt=0)
    """Width of the token table."""
    bias: bool = True
    """Bias on the map to `dim`."""


class ProjectSum(Config):
    """Narrow tables, widened when they are summed, before the norm. Source: He et al. 2021, arXiv:2006.03654."""

    kind: Literal["sum"] = "sum"
    width: int = Field(gt=0)
    """Width of the tables."""
    bias: bool = True
    """Bias on the map to `dim`."""


class ProjectNormed(Config):
    """Narrow tables, widened after norm and dropout. Source: Lan et al. 2020 (ALBERT), §3.1, arXiv:1909.11942."""

    kind: Literal["normed"] = "normed"
    width: int = Field(gt=0)
    """Width of the tables and of the norm."""
    bias: bool = True
    """Bias on the map to `dim`."""


class ProjectTwice(Config):
    """Token vectors of half the width, side by side with themselves: each direction of a model has its own copy.

    Source: Peters et al. 2018 (ELMo), §3.1, arXiv:1802.05365, where both directions read the same token vectors.
    """

    kind: Literal["twice"] = "twice"


class ProjectTrigram(Config):
    """The next token's narrow vector, the token's own and the one before, side by side, widened before positions.

    Padding beside the last token is read like any token, as in the published models.
    Source: Sun et al. 2020 (MobileBERT), §3.2, arXiv:2004.02984.
    """

    kind: Literal["trigram"] = "trigram"
    width: int = Field(gt=0)
    """Width of the token table."""
    bias: bool = True
    """Bias on the map to `dim`."""


class ProjectUndropped(Config):
    """As `ProjectNormed`, but before dropout. Source: Lee-Thorp et al. 2022 (FNet), code release, arXiv:2105.03824."""

    kind: Literal["undropped"] = "undropped"
    width: int = Field(gt=0)
    """Width of the tables and of the norm."""
    bias: bool = True
    """Bias on the map to `dim`."""


EmbeddingProjection = Annotated[
    ProjectTokens | ProjectSum | ProjectNormed | ProjectUndropped | ProjectClusters | ProjectTrigram | ProjectTwice,
    Field(discriminator="kind"),
]


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
            case ProjectTokens(width=width) | ProjectClusters(width=width) | ProjectTrigram(width=width):
                return width, dim
            case ProjectSum(width=width) | ProjectNormed(width=width) | ProjectUndropped(width=width):
                return width, width

    def norm_width(self, dim: int) -> int:
        """Return the width of the norm, which may come before the projection."""
        last = isinstance(self.projection, ProjectNormed | ProjectUndropped | ProjectTwice)
        return self.widths(dim)[1] if last else dim


class SourceEncoder(Config):
    """An encoder that feeds an encoder: its vectors stand in the place of the token vectors that the encoder reads.

    What the encoder adds to token vectors (positions, norm) it adds to these. Source: Lewis et al. 2020 (BART), §3.4,
    arXiv:1910.13461.
    """

    embed: Embedding
    """Its own tokens and positions; the vocabulary may be another one than the target's."""
    stack: Stack
    """Its blocks."""


class Transformer(Config):
    """Any model of the family: encoder only, decoder only, or both."""

    dim: int = Field(gt=0, le=2**20)
    """Width of the residual stream."""
    embed: Embedding
    """Tokens to vectors; of both sides, unless `decoder_embed` is given."""
    encoder: Stack | None = None
    """The stack that reads the source, or the only one of an encoder."""
    encoder_dim: int | None = Field(default=None, gt=0, le=2**20)
    """Width of an encoder that is not as wide as its decoder; a map leads from its vectors to those that are read."""
    source: SourceEncoder | None = None
    """What reads the source before the encoder does (encoder-decoders only); None: the encoder reads tokens."""
    decoder: Stack | None = None
    """The stack that writes."""
    decoder_embed: Embedding | None = None
    """The decoder's own embedding; None: the decoder uses `embed` too."""
    default_target: DefaultTarget | None = None
    """What the decoder reads beside an encoder where a batch has no `decoder_input_ids`; None: it must have them."""
    mix: LayerMix | None = None
    """What pooler and head read of all layers; None: the last one's vectors."""
    pooler: Pooler | None = None
    """What turns the first token into a vector for the whole input."""
    head: Head | None = None
    """What stands on top; None gives hidden vectors only."""
    initialization: Initialization = NormalInit()
    """How `build` draws the starting weights."""

    @property
    def reader_dim(self) -> int:
        """Width of the residual stream of what reads."""
        return self.encoder_dim or self.dim

    @property
    def width(self) -> int:
        """The width of the vectors that pooler and head read."""
        last = self.decoder or self.encoder
        return last.width(self.dim) if last else self.dim

    @property
    def input_embed(self) -> Embedding:
        """The embedding of the tokens that the model reads; those of a source where there are two sides."""
        return self.embed if self.source is None else self.source.embed

    @property
    def output_embed(self) -> Embedding:
        """The embedding that the language head may be tied to, and whose vocabulary it speaks."""
        return self.decoder_embed or self.embed

    @property
    def language_head(self) -> LanguageHead | None:
        """The head that gives token logits, if the model has one."""
        match self.head:
            case LanguageHead() as head:
                return head
            case PretrainingHead(language=head) | DoubleHead(language=head) | LengthHead(language=head):
                return head
            case EmbeddingHead(language=beside):
                return beside
            case _:
                return None

    @property
    def output_layer(self) -> LanguageHead | None:
        """The same, or the head that reads the two directions of a model apart."""
        return self.head.language if isinstance(self.head, BidirectionalHead) else self.language_head

    @property
    def writes(self) -> bool:
        """Whether text can be generated: by a decoder, or by a head that is asked about the place of a token."""
        head = self.language_head
        if isinstance(self.head, AdaptiveHead):
            return self.decoder is not None
        return head is not None and (self.decoder is not None or not isinstance(head.predicts, NextToken))
