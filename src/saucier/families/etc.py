"""ETC: an encoder for long and structured texts, with a global input beside the long one, in a layout of our own."""

from __future__ import annotations

from saucier import config as c


def etc(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 30522, global_tokens: int = 230,
        radius: int = 84, reach: int = 12, stretch: int = 64, dropout: float = 0.1) -> c.Transformer:
    """ETC with its language head, base by default. Source: Ainslie et al. 2020, §3 and §4, arXiv:2004.08483.

    `global_tokens` see all and are seen by all (g2g, g2l, l2g); the others see `radius` neighbours on each side (l2l).
    They are `global_input_ids`, or else the first tokens of the text. There are no positions but the labels of pairs,
    with distances up to `reach`; a global token stands for `stretch` tokens of the text, where the paper has a
    sentence. All four parts share their maps (the paper's smaller form).
    """
    norm = c.LayerNorm()
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads), kernel=c.Softmax(dropout=dropout),
        positions=c.GlobalLocal(globals=global_tokens, stretch=stretch, reach=reach),
        visibility=c.Window(radius + 1) | c.Global(otherwise=c.FirstTokens(count=global_tokens)))
    feed_forward = c.FeedForward(hidden=4 * dim, activation="gelu")
    block = c.Block(sublayers=tuple(c.PostNorm(inner=inner, norm=norm, dropout=dropout)
                                    for inner in (attention, feed_forward)))
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, norm=norm, dropout=dropout),
        encoder=c.Stack(layers=c.Repeat(block=block, times=layers)),
        head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))
