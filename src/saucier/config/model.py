"""A whole model as data: the single `Transformer`, its initial weights, and the target it reads by default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config, rewrite_config
from saucier.config.embedding import (
    Embedding,
)
from saucier.config.heads import (
    AdaptiveHead,
    BidirectionalHead,
    CustomHead,
    DoubleHead,
    EmbeddingHead,
    Head,
    LanguageHead,
    LengthHead,
    PretrainingHead,
)
from saucier.config.pooling import LayerMix, Pooler
from saucier.config.stack import SegmentMemory, Stack
from saucier.config.visibility import Window
from saucier.errors import InputError
from saucier.plain import HANDED_IN


class NormalInit(Config):
    """Matrices from a normal distribution, biases zero.

    Source: Radford et al. 2019 (GPT-2), §2.3, for the depth scaling.
    """

    kind: Literal["normal"] = "normal"
    std: float = Field(default=0.02, gt=0)
    """Standard deviation."""
    depth_scaled: bool = False
    """Divide the deviation of the maps that write to the residual by the square root of their number."""


class XavierInit(Config):
    """Matrices from a uniform distribution scaled by fan-in plus fan-out, embeddings normal with dim**-0.5.

    Source: Glorot and Bengio 2010; the usual choice for Vaswani et al. 2017.
    """

    kind: Literal["xavier"] = "xavier"


class FanInInit(Config):
    """Matrices normal with deviation fan_in**-0.5, embeddings with `embedding_std`; T5's choice.

    Where the scores are not scaled by the root of the head's width, the query map starts smaller by that factor.
    Source: Raffel et al. 2020, code release.
    """

    kind: Literal["fan_in"] = "fan_in"
    embedding_std: float = Field(default=1.0, gt=0)


class UniformInit(Config):
    """Matrices and tables from one uniform distribution around zero. Source: Luong et al. 2015, §4.1."""

    kind: Literal["uniform"] = "uniform"
    reach: float = Field(default=0.1, gt=0)
    """The largest value."""


Initialization = Annotated[NormalInit | XavierInit | FanInInit | UniformInit, Field(discriminator="kind")]


class ShiftedSource(Config):
    """The start token, then the source without its last token. Source: Lewis et al. 2020, §3.1, arXiv:1910.13461."""

    kind: Literal["shifted_source"] = "shifted_source"
    start: int = Field(ge=0)
    """Id of the token that stands first."""


class RotatedSource(Config):
    """The last real token of the source (its language), then the source without its last token.

    Source: Liu et al. 2020 (mBART), §2.1, arXiv:2001.08210.
    """

    kind: Literal["rotated_source"] = "rotated_source"
    padding: int = Field(default=1, ge=0)
    """Id of the padding token."""


DefaultTarget = Annotated[ShiftedSource | RotatedSource, Field(discriminator="kind")]


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
    """A trained mix of all layers of the first stack, in the place of its last layer's vectors. Pooler and head read
    it; in an encoder-decoder the decoder does, the same in all of its layers (each has its own in Bapna et al. 2018,
    arXiv:1808.07561). None: the last layer's vectors.
    """
    pooler: Pooler | None = None
    """What turns the first token into a vector for the whole input."""
    head: Head | None = None
    """What stands on top; None gives hidden vectors only."""
    initialization: Initialization = NormalInit()
    """How `build` draws the starting weights."""

    def __repr__(self) -> str:
        """Show the tree of parts, with their sizes."""
        return HANDED_IN["draw config"](self) or super().__repr__()

    def _repr_html_(self) -> str | None:
        """Return the tree for a notebook."""
        drawn: str | None = HANDED_IN["draw config"](self, html=True)
        return drawn

    @property
    def reader_dim(self) -> int:
        """Width of the residual stream of what reads."""
        return self.encoder_dim or self.dim

    @property
    def stacks(self) -> list[Stack]:
        """The encoder and the decoder, where there are such: the one that reads first."""
        return [stack for stack in (self.encoder, self.decoder) if stack]

    @property
    def reader_width(self) -> int:
        """The width of the vectors that the first stack gives."""
        return self.stacks[0].width(self.reader_dim)

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
            case EmbeddingHead(language=language):
                return language
            case _:
                return None

    @property
    def output_layer(self) -> LanguageHead | None:
        """The same, or the head that reads the two directions of a model separately."""
        return self.head.language if isinstance(self.head, BidirectionalHead) else self.language_head

    @property
    def gives_token_logits(self) -> bool:
        """Whether the head gives logits of tokens at each place."""
        other = isinstance(self.head, AdaptiveHead) or (isinstance(self.head, CustomHead) and self.head.token_logits)
        return other or self.language_head is not None

    @property
    def writes(self) -> bool:
        """Whether text can be generated: by a decoder, or by a head that is asked about the place of a token."""
        head = self.language_head
        if head is None and self.gives_token_logits:
            return self.decoder is not None
        return head is not None and (self.decoder is not None or head.predicts.kind != "next")


def set_memory_length(config: Transformer, length: int) -> Transformer:
    """Return a model that remembers `length` tokens, and whose windows over its memory are as long.

    Its weights stay as they are: positions are relative. Raises `InputError` for a model without a memory.
    """
    stacks = {name: stack for name in ("encoder", "decoder") if (stack := getattr(config, name)) and stack.memory}
    if not stacks:
        raise InputError("the model has no memory", where="memory", remedy="leave it out")
    return config.model_copy(update={name: set_stack_memory(stack, length) for name, stack in stacks.items()})


def set_stack_memory(stack: Stack, length: int) -> Stack:
    """Return a stack with a memory of this length."""
    assert stack.memory is not None, "called for stacks with one"
    old = stack.memory.length

    def change(node: Config) -> Config:
        match node:
            case SegmentMemory():
                return node.model_copy(update={"length": length})
            case Window(size=size) if size == old:
                return node.model_copy(update={"size": length})
            case _:
                return node

    return rewrite_config(stack, change)
