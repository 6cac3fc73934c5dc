"""The original Transformer: encoder and decoder, sinusoidal positions, one table for source, target and output."""

from __future__ import annotations

from saucier.config import (
    Block,
    Causal,
    CrossAttention,
    Embedding,
    FeedForward,
    LanguageHead,
    LayerNorm,
    PostNorm,
    PreNorm,
    Projection,
    Repeat,
    SelfAttention,
    Sinusoidal,
    Softmax,
    Stack,
    Transformer,
    XavierInit,
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
    place = PreNorm if pre_norm else PostNorm
    feed_forward = FeedForward(hidden=hidden, activation="relu")

    def stack(*inner: SelfAttention | CrossAttention | FeedForward) -> Stack:
        block = Block(sublayers=tuple(place(inner=part, norm=norm, dropout=dropout) for part in inner))
        return Stack(layers=Repeat(block=block, times=layers), final_norm=norm if pre_norm else None)

    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Sinusoidal(), scale=dim**0.5, dropout=dropout),
        encoder=stack(SelfAttention(projection=projection, kernel=kernel), feed_forward),
        decoder=stack(SelfAttention(projection=projection, visibility=Causal(), kernel=kernel),
                      CrossAttention(projection=projection, kernel=kernel), feed_forward),
        head=LanguageHead(),
        initialization=XavierInit(),
    )
