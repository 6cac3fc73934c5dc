"""T5: an encoder-decoder with pre-norm RMSNorm, relative biases shared by the layers, and unscaled scores."""

from __future__ import annotations

from saucier.config import (
    Block,
    Causal,
    CrossAttention,
    Embedding,
    FanInInit,
    FeedForward,
    GatedFeedForward,
    LanguageHead,
    PreNorm,
    Projection,
    Repeat,
    RMSNorm,
    SelfAttention,
    Softmax,
    Stack,
    T5Bias,
    Transformer,
)


def t5(dim: int = 768, layers: int = 12, *, heads: int = 12, head_dim: int = 64, vocab: int = 32128, hidden: int = 3072,
       dropout: float = 0.1, gated: bool = False) -> Transformer:
    """T5. Source: Raffel et al. 2020, §2.1, arXiv:1910.10683; `gated` is version 1.1 (gated GELU, untied output).

    The published scores are not divided by the root of the head's width: the factor is folded into the start values.
    """
    norm, kernel = RMSNorm(eps=1e-6), Softmax(dropout=dropout)
    projection = Projection(heads=heads, head_dim=head_dim, bias=False, output_bias=False, scale=1.0)
    feed_forward: FeedForward | GatedFeedForward = (
        GatedFeedForward(hidden=hidden, activation="gelu_tanh", dropout=dropout) if gated
        else FeedForward(hidden=hidden, activation="relu", bias=False, dropout=dropout))
    reader = SelfAttention(projection=projection, positions=T5Bias(), kernel=kernel)
    writer = SelfAttention(projection=projection, positions=T5Bias(bidirectional=False), visibility=Causal(), kernel=kernel)
    cross = CrossAttention(projection=projection, kernel=kernel)

    def stack(*inner: SelfAttention | CrossAttention | FeedForward | GatedFeedForward) -> Stack:
        block = Block(sublayers=tuple(PreNorm(inner=part, norm=norm, dropout=dropout) for part in inner))
        return Stack(layers=Repeat(block=block, times=layers), final_norm=norm, dropout=dropout)

    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, dropout=dropout),
        encoder=stack(reader, feed_forward),
        decoder=stack(writer, cross, feed_forward),
        head=LanguageHead(tied=not gated, scale=1.0 if gated else dim**-0.5),
        initialization=FanInInit(),
    )
