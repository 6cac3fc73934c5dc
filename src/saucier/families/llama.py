"""LLaMA: pre-norm with RMSNorm, rotary positions, gated feed-forward, grouped queries, no biases."""

from __future__ import annotations

from saucier.config import (
    Block,
    Causal,
    Embedding,
    GatedFeedForward,
    LanguageHead,
    PreNorm,
    Projection,
    Repeat,
    RMSNorm,
    Rotary,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


def llama(dim: int = 4096, layers: int = 32, *, heads: int = 32, kv_heads: int | None = None, vocab: int = 32000,
          hidden: int | None = None, base: float = 10000.0, eps: float = 1e-6, tied: bool = False, dropout: float = 0.0) -> Transformer:
    """LLaMA. Source: Touvron et al. 2023, §2.2, arXiv:2302.13971.

    `hidden` defaults to two thirds of 4·dim, rounded up to a multiple of 256 as in the published models.
    """
    norm = RMSNorm(eps=eps)
    attention = SelfAttention(projection=Projection(heads=heads, kv_heads=kv_heads, bias=False, output_bias=False),
                              positions=Rotary(base=base), visibility=Causal(), kernel=Softmax(dropout=dropout))
    feed_forward = GatedFeedForward(hidden=hidden or -(-8 * dim // 3 // 256) * 256, activation="silu")
    residuals = tuple(PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers), final_norm=norm),
        head=LanguageHead(tied=tied),
    )
