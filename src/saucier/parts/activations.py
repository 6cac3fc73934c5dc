"""The activation functions by name; none of them has weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier import config as c


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU. Source: Hendrycks and Gimpel 2016, §2, arXiv:1606.08415."""
    return F.gelu(x, approximate="tanh")


def quick_gelu(x: Tensor) -> Tensor:
    """The sigmoid approximation of GELU. Source: Hendrycks and Gimpel 2016, §2, arXiv:1606.08415."""
    return x * torch.sigmoid(1.702 * x)


def clipped_gelu(x: Tensor) -> Tensor:
    """GELU of at most 10, for 8-bit numbers. Source: Wu et al. 2020, §5, arXiv:2004.09602."""
    return F.gelu(x).clamp(-10.0, 10.0)


def squared_relu(x: Tensor) -> Tensor:
    """The square of the positive part. Source: So et al. 2021 (Primer), arXiv:2109.08668."""
    return F.relu(x).square()


def laplace(x: Tensor) -> Tensor:
    """A smooth step with the deviation of a squared ReLU. Source: Ma et al. 2023 (MEGA), §3.3, arXiv:2209.10655."""
    return 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * 2**0.5)))


def identity(x: Tensor) -> Tensor:
    """The input itself."""
    return x


ACTIVATIONS: dict[c.Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": gelu_tanh, "silu": F.silu, "tanh": torch.tanh, "identity": identity,
    "quick_gelu": quick_gelu, "clipped_gelu": clipped_gelu, "squared_relu": squared_relu, "relu6": F.relu6,
    "leaky_relu": F.leaky_relu, "mish": F.mish, "hard_swish": F.hardswish, "sigmoid": torch.sigmoid, "laplace": laplace,
}
"""Activation name -> function."""
