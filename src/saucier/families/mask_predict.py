"""Mask-Predict's model: the Transformer with a decoder that sees both ways, and a head that tells the target's length.
"""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.keys import put
from saucier.families.transformer import transformer


def mask_predict(dim: int = 512, layers: int = 6, *, heads: int = 8, vocab: int = 37000, hidden: int = 2048,
                 mask: int = 3, longest: int = 256, dropout: float = 0.3) -> c.Transformer:
    """The conditional masked language model, base size by default. Source: Ghazvininejad et al. 2019, §2 and §4.1.

    `mask` is the id of the mask token; with the special tokens pad, unk, eos and mask it is 3. Every source must begin
    with a token that stands for the target's length. The norms stand before the sublayers, which trains
    without a long warm-up; the paper has them behind.
    """
    body = transformer(dim, layers, heads=heads, vocab=vocab, hidden=hidden, dropout=dropout, pre_norm=True)
    seen: c.Transformer = put(body, "decoder.layers.block.sublayers.0.inner.visibility", c.Full())
    language = c.LanguageHead(predicts=c.WholeText(mask=mask))
    return seen.model_copy(update={"head": c.LengthHead(language=language, longest=longest),
                                   "pooler": c.Pooler(dense=False, activation="identity")})
