"""A rough calibration for models of which this machine cannot even hold two layers: one product of matrices, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import linear

ROWS = 1024
TRIES = 7
SPARE = 2**22
"""Parameters of the vector that the optimizer's step is timed on."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How quick this machine is."""

    flops: float
    """Floating-point operations a second in a product as wide as the model."""
    parameters: float
    """Parameters that AdamW updates a second."""


def rates(dim: int, dtype: torch.dtype, device: torch.device) -> Rates:
    """Time a product of [1024, dim] and [dim, 4 dim], and AdamW on a few million parameters."""
    vector = torch.nn.Parameter(torch.randn(SPARE, device=device))
    vector.grad = torch.randn_like(vector)
    optimizer = torch.optim.AdamW([vector], fused=True)
    return Rates(product_flops(dim, dtype, device), SPARE / median(optimizer.step))


def product_flops(dim: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the floating-point operations a second of a product of [1024, dim] and [dim, 4 dim]."""
    left = torch.randn(ROWS, dim, device=device).to(dtype)
    right = torch.randn(4 * dim, dim, device=device).to(dtype)
    return 2.0 * ROWS * dim * 4 * dim / median(lambda: linear(left, right))


def median(work: Callable[[], object]) -> float:
    """Return the median seconds of some tries, after one that does not count."""
    spent = []
    for _ in range(TRIES + 1):
        begin = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent[1:])
