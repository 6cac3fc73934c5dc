"""The character-level model of deeper self-attention: many plain causal layers, each with positions of its own."""

from __future__ import annotations

from saucier import config as c


def deep_char(dim: int = 512, layers: int = 64, *, heads: int = 8, vocab: int = 256, length: int = 512,
              hidden: int = 2048, dropout: float = 0.55) -> c.Transformer:
    """T64, or T12 with 12 layers.

    Source: Al-Rfou et al. 2019, §2, arXiv:1808.04444: blocks as in Vaswani et al. 2017 with dropout inside attention
    and feed-forward, a learned position added before every block, an output matrix of its own. No weights were
    published.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden, activation="relu", dropout=dropout)
    residuals = (c.PostNorm(inner=attention), c.PostNorm(inner=feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab),
        decoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers),
                        layer_positions=c.Learned(length=length)),
        head=c.LanguageHead(tied=False),
    )
