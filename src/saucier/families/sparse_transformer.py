"""Sparse Transformer: GPT-2 whose attention is made of two sparse patterns, for long sequences of bytes."""

from __future__ import annotations

from saucier import config as c
from saucier.config.factors import Factors, FixedFactors, Form, Merged
from saucier.config.turns import in_turns

FIXED, MERGED = FixedFactors(), Merged()


def sparse_transformer(dim: int = 512, layers: int = 30, *, heads: int = 8, vocab: int = 256, length: int = 12288,
                       factors: Factors = FIXED, form: Form = MERGED, dropout: float = 0.4) -> c.Transformer:
    """Sparse Transformer, as for enwik8 by default. Source: Child et al. 2019, §5 and §7.2, arXiv:1904.10509.

    A position has a vector for its row of `factors.stride` positions and one for its column; they stand side by side,
    where the paper adds them up.
    """
    rows = -(-length // factors.stride)
    positions = c.Axial(shape=(rows, factors.stride), widths=(dim - dim // 2, dim // 2))

    def block(visibility: c.Visibility) -> c.Block:
        attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=visibility)
        feed_forward = c.FeedForward(hidden=4 * dim, activation="quick_gelu")
        return c.Block(sublayers=tuple(c.PreNorm(inner=inner, norm=c.LayerNorm(), dropout=dropout)
                                       for inner in (attention, feed_forward)))

    turn = form.turn(factors.terms())
    blocks = tuple(block(turn[layer % len(turn)]) for layer in range(layers))
    return c.Transformer(
        dim=dim, embed=c.Embedding(vocab=vocab, positions=positions, dropout=dropout), head=c.LanguageHead(tied=False),
        decoder=c.Stack(layers=in_turns(blocks), final_norm=c.LayerNorm()),
        initialization=c.NormalInit(std=0.125 / dim**0.5, depth_scaled=True))
