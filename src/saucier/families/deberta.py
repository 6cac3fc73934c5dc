"""DeBERTa in its three versions: a BERT whose attention scores content and distance apart."""

from __future__ import annotations

from saucier import config as c


def deberta(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DeBERTa with its language head. Source: He et al. 2021, §3, arXiv:2006.03654.

    `length` is the reach of the distances; there are no absolute positions, as in the published base and large models.
    """
    positions = c.Disentangled(distances=c.ExactDistances(reach=length), maps=c.OwnMaps(key_bias=False),
                               dropout=dropout)
    projection = c.Projection(heads=heads, key_bias=False)
    return encoder(dim, layers, c.SelfAttention(projection=projection, positions=positions), vocab=vocab,
                   hidden=hidden or 4 * dim, dropout=dropout)


def deberta_v2(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 128100,
    length: int = 512,
    buckets: int = 256,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DeBERTa-v3, base size by default, with a language head. Source: He et al. 2023, §5.1, arXiv:2111.09543.

    The second version has the same parts (He et al. 2021, code release), and a convolution beside its first block.
    """
    positions = c.Disentangled(distances=c.LogDistances(buckets=buckets, reach=length), maps=c.SharedMaps(),
                               norm=c.LayerNorm(eps=1e-7), dropout=dropout)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=positions)
    return encoder(dim, layers, attention, vocab=vocab, hidden=hidden or 4 * dim, dropout=dropout)


def encoder(dim: int, layers: int, attention: c.SelfAttention, *, vocab: int, hidden: int,
            dropout: float) -> c.Transformer:
    """The tree that all versions share, around their attention."""
    norm = c.LayerNorm(eps=1e-7)
    attention = attention.model_copy(update={"kernel": c.Softmax(dropout=dropout)})
    residuals = tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout)
                      for inner in (attention, c.FeedForward(hidden=hidden)))
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))
