"""Models of one side in a layout of our own: deep character-level decoders, Sparse Transformer, ETC, and ELMo."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Literal

from pydantic import Field

from saucier import config as c
from saucier.checkpoints.classes import repeat_block
from saucier.config import (
    LSTM,
    BidirectionalHead,
    Block,
    Chain,
    CharacterNetwork,
    Config,
    Cycle,
    Direction,
    Embedding,
    LanguageHead,
    ProjectTwice,
    Recurrent,
    Skip,
    Stack,
    Transformer,
    UniformInit,
)
from saucier.config.blocks import arrange_blocks
from saucier.config.visibility import BlockWindow, Causal, Columns, Combined, Strided, Visibility, Window


def deep_char(dim: int = 512, layers: int = 64, *, heads: int = 8, vocab: int = 256, length: int = 512,
              hidden: int = 2048, dropout: float = 0.55) -> c.Transformer:
    """T64, or T12 with 12 layers.

    Source: Al-Rfou et al. 2019, §2, arXiv:1808.04444: blocks as in Vaswani et al. 2017 with dropout inside attention
    and feed-forward, a learned position added before every block, an output matrix of its own. No weights were
    published.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab),
        decoder=repeat_block(layers, attention, c.FeedForward(hidden=hidden, activation="relu", dropout=dropout),
                             layer_positions=c.Learned(length=length)),
        head=c.LanguageHead(tied=False),
    )


class StridedFactors(Config):
    """The last `stride` positions, and every position a multiple of `stride` back. Source: Child et al. 2019, §4.3."""

    kind: Literal["strided"] = "strided"
    stride: int = Field(default=128, gt=0)
    """Near the square root of the length."""

    def terms(self) -> tuple[Visibility, ...]:
        """Return the two patterns."""
        return Causal() & Window(self.stride + 1), Causal() & Strided(stride=self.stride)


class FixedFactors(Config):
    """The block of `stride` that a position stands in, and the last `count` positions of all blocks before.

    Source: Child et al. 2019, §4.3.
    """

    kind: Literal["fixed"] = "fixed"
    stride: int = Field(default=128, gt=0)
    """Positions of a block; near the square root of the length."""
    count: int = Field(default=32, gt=0)
    """Positions at the end of a block that sum it up (c in the paper)."""

    def terms(self) -> tuple[Visibility, ...]:
        """Return the two patterns."""
        own = BlockWindow(size=self.stride, reach=0)
        return Causal() & own, Causal() & Columns(stride=self.stride, count=self.count)


Factors = Annotated[StridedFactors | FixedFactors, Field(discriminator="kind")]


class Form(Config):
    """How an attention, or a stack of them, is made of patterns (C eq 93–95).

    - interleaved: one pattern a layer, in turn. Source: Child et al. 2019, §4.2, eq 6;
    - merged: every head sees what any of the patterns shows. Source: eq 7;
    - multi_head: the patterns are shared out among the heads of every layer. Source: eq 8.
    """

    kind: Literal["interleaved", "merged", "multi_head"]

    def turn(self, terms: tuple[Visibility, ...]) -> tuple[Visibility, ...]:
        """Return what the layers of one turn see."""
        match self.kind:
            case "interleaved":
                return terms
            case "merged":
                return (reduce(or_, terms),)
            case "multi_head":
                return (Combined(kind="by_head", terms=terms),)


FIXED, MERGED = FixedFactors(), Form(kind="merged")


def sparse_transformer(dim: int = 512, layers: int = 30, *, heads: int = 8, vocab: int = 256, length: int = 12288,
                       factors: Factors = FIXED, form: Form = MERGED, dropout: float = 0.4) -> c.Transformer:
    """Sparse Transformer, as for enwik8 by default. Source: Child et al. 2019, §5 and §7.2, arXiv:1904.10509.

    A position has a vector for its row of `factors.stride` positions and one for its column; they are concatenated,
    where the paper adds them up.
    """
    rows = -(-length // factors.stride)
    positions = c.Axial(shape=(rows, factors.stride), widths=(dim - dim // 2, dim // 2))

    def block(visibility: c.Visibility) -> c.Block:
        attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=visibility)
        feed_forward = c.FeedForward(hidden=4 * dim, activation="quick_gelu")
        return c.Block(sublayers=tuple(c.PreNorm(inner=inner, norm=c.LayerNorm(), dropout=dropout)
                                       for inner in (attention, feed_forward)))

    turn = form.turn(factors.terms())
    blocks = tuple(block(turn[layer % len(turn)]) for layer in range(layers))
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, positions=positions, dropout=dropout), head=c.LanguageHead(tied=False),
        decoder=c.Stack(layers=arrange_blocks(blocks), final_norm=c.LayerNorm()),
        initialization=c.NormalInit(std=0.125 / dim**0.5, depth_scaled=True))


def etc(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30522, global_tokens: int = 230,
        radius: int = 84, reach: int = 12, stretch: int = 64, dropout: float = 0.1) -> c.Transformer:
    """ETC with its language head, base by default. Source: Ainslie et al. 2020, §3 and §4, arXiv:2004.08483.

    `global_tokens` see all and are seen by all (g2g, g2l, l2g); the others see `radius` neighbours on each side (l2l).
    They are `global_input_ids`, or else the first tokens of the text. There are no positions but the labels of pairs,
    with distances up to `reach`; a global token represents `stretch` tokens of the text, where the paper has a
    sentence. All four parts share their maps (the paper's smaller form).
    """
    norm = c.LayerNorm()
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout),
        positions=c.GlobalLocal(globals=global_tokens, stretch=stretch, reach=reach),
        visibility=c.Window(radius + 1) | c.Global(otherwise=c.FirstTokens(count=global_tokens)))
    feed_forward = c.FeedForward(hidden=4 * dim, activation="gelu")
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, norm=norm, dropout=dropout),
        encoder=repeat_block(layers, attention, feed_forward, norm=norm, dropout=dropout),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))


def elmo(dim: int = 1024, layers: int = 2, *, cells: int = 4096, vocab: int = 793471, dropout: float = 0.1,
         characters: CharacterNetwork | None = None, clip: float | None = None, tied: bool = False) -> Transformer:
    """ELMo; `dim` is the width of both directions together.

    As published it has `characters` (`CharacterNetwork()`) and `clip` 3; without characters a table has a vector for
    each token.

    Each direction has `cells` memory cells in a layer, projected to half of `dim`, and a residual from the first layer
    on. Source: Peters et al. 2018, §3.4, arXiv:1802.05365; the sizes are those of Jozefowicz et al. 2016,
    arXiv:1602.02410, halved. `tied`: the output layer is the token table, for small models.
    """
    part = Recurrent(cell=LSTM(cells=cells, clip=clip), direction=Direction(kind="apart"))
    first, other = (Block(sublayers=(place(inner=part, dropout=dropout),)) for place in (Chain, Skip))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, characters=characters, projection=ProjectTwice(), dropout=dropout),
        encoder=Stack(layers=Cycle(blocks=(first, *[other] * (layers - 1)), times=1)),
        head=BidirectionalHead(language=LanguageHead(tied=tied, bias=True)),
        initialization=UniformInit(reach=0.05),
    )
