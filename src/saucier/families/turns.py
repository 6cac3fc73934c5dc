"""Different blocks in the order of their layers, as the shortest turn that repeats."""

from __future__ import annotations

from saucier import config as c


def in_turns(blocks: tuple[c.Block, ...]) -> c.Repeat | c.Cycle:
    """Return layers that give these blocks, in this order. Raises `ValueError` where there are none."""
    count = len(blocks)
    for size in range(1, count + 1):
        if count % size == 0 and blocks[:size] * (count // size) == blocks:
            times = count // size
            return c.Repeat(block=blocks[0], times=times) if size == 1 else c.Cycle(blocks=blocks[:size], times=times)
    raise ValueError("a stack has at least one layer")
