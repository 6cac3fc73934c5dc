"""How families lay out blocks: the same again and again."""

from __future__ import annotations

from typing import Any

from saucier import config as c

Place = type[c.PreNorm] | type[c.PostNorm] | type[c.FromNorm]


def repeated(layers: int, *inner: Any, place: Place = c.PostNorm, norm: c.Norm | None = None, dropout: float = 0.0,
             **rest: Any) -> c.Stack:
    """Return a stack of equal blocks, each of these sublayers in residuals of one kind; `rest`: fields of the stack."""
    block = c.Block(sublayers=tuple(place(inner=part, norm=norm or c.LayerNorm(), dropout=dropout) for part in inner))
    return c.Stack(layers=c.Repeat(block=block, times=layers), **rest)
