"""Weights that follow from a seed, and outputs thinned to be stored: the rules that both environments share."""

from __future__ import annotations

import torch
from torch import Tensor

KEPT = 120
"""How many values of an output are stored at most."""


def fill(shapes: dict[str, list[int]], seed: int) -> dict[str, Tensor]:
    """Return a tensor for each name, in the order of the names: whole numbers by 4000, so the same bits everywhere.

    Gains of norms are around one.
    """
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, shape in sorted(shapes.items()):
        gain = "norm" in name.lower() and name.endswith("weight") and len(shape) == 1
        made[name] = torch.randint(-1000, 1001, shape, generator=generator) / 4000 + (1.0 if gain else 0.0)
    return made


def thinned(value: Tensor) -> Tensor:
    """Return evenly spaced values of a tensor. Shapes: any -> [at most KEPT]."""
    flat = value.detach().float().flatten()
    return flat[::max(1, -(-len(flat) // KEPT))].contiguous()
