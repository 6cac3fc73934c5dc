"""Cross-entropy over a large vocabulary in chunks: the [tokens, vocab] matrix of logits never exists as a whole.

Each chunk's gradient is computed right after its logits, in the same buffer, so nothing is computed twice and the
memory is one chunk. Letters: N targets, D dim, V vocab.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.parts.linear import linear, matmul_t

CHUNK_BYTES = 64 * 2**20
"""Largest buffer of logits: big enough for full speed of the matrix products, small beside the weights."""
TINY = 1e-38


@dataclass(slots=True)
class Sums:
    """What is added up over the targets. Each is a scalar in float32."""

    loss: Tensor
    """With label smoothing; carries the gradient."""
    nll: Tensor
    """Plain negative log-likelihood in nats; detached."""
    correct: Tensor
    """Targets that are the most likely token; detached, counted only without gradients."""


def chunk_rows(vocab: int, bytes_per_value: int) -> int:
    """Return how many targets a chunk takes."""
    return max(1, CHUNK_BYTES // (vocab * bytes_per_value))


def cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *,
                  smoothing: float = 0.0) -> Sums:
    """Sum the loss of `features @ weight.T + bias` against the targets.

    Shapes: features [N, D], weight [V, D], bias [V], targets [N]. Under autocast the products are in its format.
    Label smoothing ε puts (1-ε) + ε/V on the target and ε/V on all else.
    Source: Szegedy et al. 2016, §7, arXiv:1512.00567; the chunks with gradients at once: Hsu et al. 2024 (Liger), §3.2,
    arXiv:2410.10989.
    """
    kind = features.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else features.dtype
    with torch.autocast(kind, enabled=False):
        if torch.is_grad_enabled():
            loss, nll = Chunked.apply(features.to(dtype), weight, bias, targets,
                                      smoothing)  # type: ignore[no-untyped-call]
            return Sums(loss, nll, torch.zeros_like(nll))
        return measure(features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype), targets,
                       smoothing)


def measure(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Sums:
    """Sum loss and hits without gradients, with the softmax in float32."""
    sums = torch.zeros(3, dtype=torch.float64, device=features.device)
    rows = chunk_rows(weight.shape[0], 4)
    for start in range(0, len(targets), rows):
        wanted = targets[start:start + rows]
        logits = linear(features[start:start + rows], weight, bias).float()
        sums[0] += F.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
        sums[1] += F.cross_entropy(logits, wanted, reduction="sum")
        sums[2] += (logits.argmax(dim=-1) == wanted).sum()
    loss, nll, correct = sums.float()
    return Sums(loss, nll, correct)


class Chunked(torch.autograd.Function):
    """Loss and gradients in one sweep over the chunks; `backward` only scales them."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
                smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute in the format of `features`; return the smoothed and the plain loss. Shapes: as `cross_entropy`."""
        rows, dtype = chunk_rows(weight.shape[0], features.element_size()), features.dtype
        sweep = Sweep.over(features, weight.to(dtype), None if bias is None else bias.to(dtype), smoothing)
        for start in range(0, len(targets), rows):
            sweep.chunk(slice(start, start + rows), targets[start:start + rows])
        ctx.save_for_backward(sweep.features_gradient, sweep.weight_gradient, sweep.bias_gradient)
        ctx.dtype = weight.dtype
        nll = sweep.nll.float()
        ctx.mark_non_differentiable(nll)
        return sweep.loss.float(), nll

    @staticmethod
    def backward(ctx: Any, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass found; `scale` is a scalar."""
        features, weight, bias = ctx.saved_tensors
        bias = None if bias is None else bias.mul_(scale).to(ctx.dtype)
        return features.mul_(scale), weight.mul_(scale).to(ctx.dtype), bias, None, None


@dataclass(slots=True)
class Sweep:
    """The running sums of one pass over the chunks; weight gradients add up in float32."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None
    smoothing: float
    features_gradient: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor | None
    loss: Tensor
    nll: Tensor

    @classmethod
    def over(cls, features: Tensor, weight: Tensor, bias: Tensor | None, smoothing: float) -> Sweep:
        """Begin with empty sums."""
        def zeros(like: Tensor) -> Tensor:
            return torch.zeros_like(like, dtype=torch.float32)

        total = torch.zeros((), dtype=torch.float64, device=features.device)
        return cls(features, weight, bias, smoothing, torch.empty_like(features), zeros(weight),
                   None if bias is None else zeros(bias), total, total.clone())

    def chunk(self, rows: slice, targets: Tensor) -> None:
        """Add one chunk of n targets: logits, probabilities, and in their place the gradient, each [n, V]."""
        part, at = self.features[rows], targets[:, None]
        logits = linear(part, self.weight, self.bias)
        gradient = torch.softmax(logits, dim=-1)
        nll = -gradient.gather(1, at).float().clamp_min(TINY).log().double().sum()
        self.nll += nll
        self.loss += nll
        if self.smoothing:
            means = logits.mean(dim=1, dtype=torch.float32)
            self.loss += self.smoothing * (logits.gather(1, at).double().sum() - means.double().sum())
            gradient -= self.smoothing / gradient.shape[1]
        gradient.scatter_add_(1, at, torch.full_like(at, self.smoothing - 1.0, dtype=gradient.dtype))
        self.features_gradient[rows] = matmul_t(gradient, self.weight.T)
        self.weight_gradient += matmul_t(gradient.T, part.T)
        if self.bias_gradient is not None:
            self.bias_gradient += gradient.sum(dim=0, dtype=torch.float32)
