"""How families lay out blocks: the same again and again, or different ones in the shortest turn that repeats."""

from __future__ import annotations

from typing import Any

from saucier import config as c

Place = type[c.PreNorm] | type[c.PostNorm] | type[c.FromNorm]


def repeated(layers: int, *inner: Any, place: Place = c.PostNorm, norm: c.Norm | None = None, dropout: float = 0.0,
             **rest: Any) -> c.Stack:
    """Return a stack of equal blocks, each of these sublayers in residuals of one kind; `rest`: fields of the stack."""
    block = c.Block(sublayers=tuple(place(inner=part, norm=norm or c.LayerNorm(), dropout=dropout) for part in inner))
    return c.Stack(layers=c.Repeat(block=block, times=layers), **rest)


def in_turns(blocks: tuple[c.Block, ...]) -> c.Repeat | c.Cycle:
    """Return layers that give these blocks, in this order. Raises `ValueError` where there are none."""
    count = len(blocks)
    for size in range(1, count + 1):
        if count % size == 0 and blocks[:size] * (count // size) == blocks:
            times = count // size
            return c.Repeat(block=blocks[0], times=times) if size == 1 else c.Cycle(blocks=blocks[:size], times=times)
    raise ValueError("a stack has at least one layer")
