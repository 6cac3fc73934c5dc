"""GPT and GPT-2: a stack of causal blocks with learned positions and a tied output layer."""

from __future__ import annotations

from saucier.config import (
    Block,
    Causal,
    Embedding,
    FeedForward,
    LanguageHead,
    LayerNorm,
    Learned,
    NormalInit,
    PostNorm,
    PreNorm,
    Projection,
    Repeat,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


def sublayers(dim: int, heads: int, hidden: int | None, dropout: float) -> tuple[SelfAttention, FeedForward]:
    """The two sublayers that both generations share."""
    attention = SelfAttention(projection=Projection(heads=heads), visibility=Causal(), kernel=Softmax(dropout=dropout))
    return attention, FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")


def gpt(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 40478, length: int = 512, hidden: int | None = None,
        dropout: float = 0.1) -> Transformer:
    """GPT: norms after each sublayer. Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", §4.1."""
    norm = LayerNorm()
    residuals = tuple(PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in sublayers(dim, heads, hidden, dropout))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), dropout=dropout),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers)),
        head=LanguageHead(),
    )


def gpt2(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50257, length: int = 1024, hidden: int | None = None,
         dropout: float = 0.1) -> Transformer:
    """GPT-2: norms before each sublayer and one at the end, residual maps started smaller with depth. Source: Radford et al. 2019, §2.3."""
    norm = LayerNorm()
    residuals = tuple(PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in sublayers(dim, heads, hidden, dropout))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), dropout=dropout),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers), final_norm=norm),
        head=LanguageHead(),
        initialization=NormalInit(depth_scaled=True),
    )
