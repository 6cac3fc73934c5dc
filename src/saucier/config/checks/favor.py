"""Illegal combinations around attention by random features."""

from __future__ import annotations

from saucier.config.favor import Favor
from saucier.config.layers import SelfAttention
from saucier.config.positions import NoPositions, Rotary
from saucier.config.visibility import Causal, Full
from saucier.errors import InputError

WIDEST = 128
"""Values of a head whose features are never too large or too small for sums in float32."""


def check_favor(path: str, attention: SelfAttention, dim: int) -> None:
    """Sums over keys know no pairs: nothing can be added to the score of one, or hidden from one, but what is later."""
    if not isinstance(attention.kernel, Favor):
        return
    if not isinstance(attention.visibility, Full | Causal) or attention.global_maps:
        raise InputError("kernel favor has no pairs of positions to hide", where=f"{path}.visibility",
                         remedy="use full or causal without maps for global tokens, or kernel softmax")
    if not isinstance(attention.positions, NoPositions | Rotary):
        raise InputError(f"kernel favor cannot take positions {attention.positions.kind}", where=f"{path}.positions",
                         remedy="use rotary, or positions in the embedding, or kernel softmax")
    head = attention.projection.widths(dim)[2]
    if head > WIDEST:
        raise InputError(f"features of heads of {head} values are beyond float32", where=f"{path}.projection",
                         remedy=f"use more heads, of {WIDEST} values at most")
