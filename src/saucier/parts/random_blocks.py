"""Which blocks BigBird draws: the published way, by numpy's old generator, so that published numbers come out.

Letters: H heads, N blocks, R blocks drawn for each block.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from saucier import config as c

PUBLISHED_LENGTHS = (1024, 3072, 4096)
"""Lengths for which the published code draws for the longest input at once, within `NEAR` positions."""
NEAR = 1024


class Draw(NamedTuple):
    """For whom blocks are drawn: in training, each layer has its own."""

    heads: int
    layer: int
    """Number of the attention in its stack; the seed."""


def random_counts(config: c.RandomBlocks, blocks: int, draw: Draw | None) -> Tensor:
    """Return how often each block of queries sees each block of keys by chance.

    `draw` None is evaluation: the first block takes the place of every drawn one. Shapes: -> [H or 1, N, N].
    Source: Zaheer et al. 2020, appendix D, arXiv:2007.14062, and its code release.
    """
    if draw is None:
        counts = torch.zeros(1, blocks, blocks, dtype=torch.int16)
        counts[:, 1:-1, 0] = config.count
        return counts
    return torch.from_numpy(drawn_counts(config, blocks, draw))


@lru_cache(maxsize=64)
def drawn_counts(config: c.RandomBlocks, blocks: int, draw: Draw) -> numpy.ndarray:
    """Count what is drawn for every head and block. Shapes: -> [H, N, N]."""
    generator = numpy.random.RandomState(draw.layer)
    counts = numpy.zeros((draw.heads, blocks, blocks), dtype=numpy.int16)
    long = config.length // config.size
    if blocks * config.size in PUBLISHED_LENGTHS and long >= blocks:
        for head in range(draw.heads):
            for block in range(1, long - 1):
                near = generator.permutation(near_candidates(config.size, long, block))[:config.count]
                if block < blocks - 1:
                    counts[head, block, near] += 1
        return counts
    reach = min(2 * config.count + 5, blocks)
    for block in range(1, blocks):
        for head in range(draw.heads):
            order = generator.permutation(reach)
            found = [other for other in order if other not in barred(block, reach)][:config.count]
            if block < blocks - 1:
                counts[head, block, found] += 1
    return counts


def barred(block: int, reach: int) -> set[int]:
    """Return the blocks that are not drawn for a block: its window, and those that are global among the first."""
    found = {block - 1, block, block + 1, 0, reach - 1}
    return found | ({reach - 2} if block == 1 else set()) | ({1} if block == reach - 2 else set())


def near_candidates(size: int, blocks: int, block: int) -> numpy.ndarray:
    """Return the blocks to draw from at a published length: the near ones without the window, ends apart.

    The published code lets the last blocks of the longest input draw what their window shows them too.
    """
    middle = numpy.arange(1, blocks - 1)
    last = NEAR // size - 1 if 2 * size < NEAR else blocks - 1
    before, after = block - 2, block
    if block <= 2:
        return middle[block + 1:last]
    if block >= blocks - 3 or before > last:
        return middle[:last]
    if after + 1 == last:
        return middle[:before]
    return numpy.concatenate([middle[:before], middle[after + 1:last]])
