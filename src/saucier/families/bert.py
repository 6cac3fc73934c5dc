"""BERT: an encoder with post-norm, learned positions and segments, trained on masked words and sentence pairs."""

from __future__ import annotations

from saucier.config import (
    Block,
    Embedding,
    FeedForward,
    HeadTransform,
    LanguageHead,
    LayerNorm,
    Learned,
    Pooler,
    PostNorm,
    PretrainingHead,
    Projection,
    Repeat,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


def bert(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30522, length: int = 512, hidden: int | None = None,
         segments: int = 2, dropout: float = 0.1) -> Transformer:
    """BERT with both pretraining heads. Source: Devlin et al. 2019, §3, arXiv:1810.04805."""
    norm = LayerNorm(eps=1e-12)
    attention = SelfAttention(projection=Projection(heads=heads), kernel=Softmax(dropout=dropout))
    feed_forward = FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    residuals = tuple(PostNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab, positions=Learned(length=length), segments=segments, norm=norm, dropout=dropout),
        encoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers)),
        pooler=Pooler(),
        head=PretrainingHead(language=LanguageHead(bias=True, transform=HeadTransform(activation="gelu", norm=norm))),
    )
