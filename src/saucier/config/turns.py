"""Blocks laid out in layers: the same again and again, or different ones in the shortest turn that repeats."""

from __future__ import annotations

from saucier.config.model import Block, Cycle, Repeat
from saucier.errors import InputError


def in_turns(blocks: tuple[Block, ...]) -> Repeat | Cycle:
    """Return layers that give these blocks, in this order. Raises `InputError` where there are none."""
    count = len(blocks)
    for size in range(1, count + 1):
        if count % size == 0 and blocks[:size] * (count // size) == blocks:
            times = count // size
            return Repeat(block=blocks[0], times=times) if size == 1 else Cycle(blocks=blocks[:size], times=times)
    raise InputError("a stack has at least one layer", where="layers", remedy="give 1 or more")
