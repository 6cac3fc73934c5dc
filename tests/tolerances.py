"""The only tolerances of the tests, in float32. They are not loosened to make a test pass."""

from __future__ import annotations

import torch
from torch import Tensor

PART = 1e-5
"""For one part, and for models of a few layers that do the same sums in another order."""
MODEL = 1e-4
"""For whole models against another implementation."""


def assert_close(found: Tensor, expected: Tensor, tolerance: float = PART, what: str = "") -> None:
    """Fail with the largest difference where two tensors are further apart than the tolerance."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance,
                               msg=lambda message: f"{what}: {message}")
