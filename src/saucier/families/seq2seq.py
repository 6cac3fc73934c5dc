"""Encoder-decoders in a layout of our own: recurrent ones with thought vectors or attention, the original Transformer,
and Mask-Predict's, whose decoder sees both ways and whose head tells the target's length.
"""

from __future__ import annotations

from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import repeat_block
from saucier.checkpoints.fields import put
from saucier.config import (
    LSTM,
    Block,
    Causal,
    Chain,
    CrossAttention,
    Direction,
    Embedding,
    FeedForward,
    InitialState,
    LanguageHead,
    LayerNorm,
    Luong,
    PostNorm,
    PreNorm,
    Projection,
    Recurrent,
    Repeat,
    SelfAttention,
    Sinusoidal,
    Softmax,
    Stack,
    Transformer,
    UniformInit,
    XavierInit,
)
from saucier.config.recurrent import Alignment, Cell

CELL, AHEAD, FINAL, LOOK = LSTM(), Direction(kind="ahead"), InitialState(kind="final"), Luong()


def seq2seq(
    dim: int = 1000,
    layers: int = 4,
    *,
    vocab: int = 50000,
    cell: Cell = CELL,
    direction: Direction = AHEAD,
    start: InitialState = FINAL,
    attention: Alignment | None = LOOK,
    dropout: float = 0.2,
) -> Transformer:
    """A recurrent encoder and decoder; Luong's by default: four LSTM layers, global attention, input feeding.

    `direction` is the encoder's. Source, target and output share one table, as in later translation; the papers have
    three. Source: Luong et al. 2015, §4.1, arXiv:1508.04025; without attention Sutskever et al.
    2014, §3, arXiv:1409.3215; Bahdanau et al. 2015, arXiv:1409.0473, with one GRU layer both ways.
    """

    def stack(part: Recurrent) -> Stack:
        return Stack(layers=Repeat(block=Block(sublayers=(Chain(inner=part, dropout=dropout),)), times=1))

    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, dropout=dropout),
        encoder=stack(Recurrent(cell=cell, layers=layers, direction=direction, dropout=dropout)),
        decoder=stack(Recurrent(cell=cell, layers=layers, dropout=dropout, start=start, attention=attention)),
        head=LanguageHead(),
        initialization=UniformInit(),
    )


def transformer(
    dim: int = 512,
    layers: int = 6,
    *,
    heads: int = 8,
    vocab: int = 37000,
    hidden: int = 2048,
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    pre_norm: bool = False,
) -> Transformer:
    """The Transformer, base size by default. Source: Vaswani et al. 2017, §3 and table 3, arXiv:1706.03762.

    `pre_norm` places the norms before the sublayers (and one after each stack), which trains without a long warm-up.
    """
    norm, projection, kernel = LayerNorm(), Projection(heads=heads), Softmax(dropout=attention_dropout)
    feed_forward = FeedForward(hidden=hidden, activation="relu")
    stack = partial(repeat_block, layers, place=PreNorm if pre_norm else PostNorm, norm=norm, dropout=dropout,
                    final_norm=norm if pre_norm else None)
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Sinusoidal(), scale=dim**0.5, dropout=dropout),
        encoder=stack(SelfAttention(projection=projection, kernel=kernel), feed_forward),
        decoder=stack(SelfAttention(projection=projection, visibility=Causal(), kernel=kernel),
                      CrossAttention(projection=projection, kernel=kernel), feed_forward),
        head=LanguageHead(),
        initialization=XavierInit(),
    )


def mask_predict(dim: int = 512, layers: int = 6, *, heads: int = 8, vocab: int = 37000, hidden: int = 2048,
                 mask: int = 3, longest: int = 256, dropout: float = 0.3) -> c.Transformer:
    """The conditional masked language model, base size by default. Source: Ghazvininejad et al. 2019, §2 and §4.1.

    `mask` is the id of the mask token; with the special tokens pad, unk, eos and mask it is 3. Every source must begin
    with a token to predict the target's length from. The norms come before the sublayers, which trains
    without a long warm-up; the paper has them after.
    """
    body = transformer(dim, layers, heads=heads, vocab=vocab, hidden=hidden, dropout=dropout, pre_norm=True)
    return put(body, {"decoder.layers.block.sublayers.0.inner.visibility": c.Full(),
                      "head": c.LengthHead(language=c.LanguageHead(predicts=c.WholeText(mask=mask)), longest=longest),
                      "pooler": c.Pooler(dense=False, activation="identity")})
