"""Cross-entropy over a large vocabulary: in chunks, or against sampled tokens.

The whole [tokens, vocab] matrix of logits never exists. Each chunk's gradient is computed right after its logits,
in the same buffer, so the memory is one chunk. Letters: N targets, D dim, V vocab, S samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saucier.parts.linear import linear, matmul_t

CHUNK_BYTES = 64 * 2**20
"""Largest buffer of logits: big enough for full speed of the matrix products, small compared with the weights."""
TINY = 1e-38


@dataclass(slots=True)
class LossSums:
    """What is added up over the targets. Each is a scalar in float32."""

    loss: Tensor
    """With label smoothing; carries the gradient."""
    nll: Tensor
    """Plain negative log-likelihood in nats; detached."""
    correct: Tensor
    """Targets that are the most likely token; detached, counted only without gradients."""


def count_chunk_rows(vocab: int, bytes_per_value: int) -> int:
    """Return how many targets a chunk takes."""
    return max(1, CHUNK_BYTES // (vocab * bytes_per_value))


def compute_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *,
                          smoothing: float = 0.0) -> LossSums:
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
            loss, nll = ChunkedCrossEntropy.apply(features.to(dtype), weight, bias, targets,
                                                  smoothing)  # type: ignore[no-untyped-call]
            return LossSums(loss, nll, torch.zeros_like(nll))
        return measure_cross_entropy(features.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype),
                                     targets, smoothing)


def measure_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
                          smoothing: float) -> LossSums:
    """Sum loss and hits without gradients, with the softmax in float32."""
    sums = torch.zeros(3, dtype=torch.float64, device=features.device)
    rows = count_chunk_rows(weight.shape[0], 4)
    for start in range(0, len(targets), rows):
        expected = targets[start:start + rows]
        logits = linear(features[start:start + rows], weight, bias).float()
        sums[0] += F.cross_entropy(logits, expected, reduction="sum", label_smoothing=smoothing)
        sums[1] += F.cross_entropy(logits, expected, reduction="sum")
        sums[2] += (logits.argmax(dim=-1) == expected).sum()
    loss, nll, correct = sums.float()
    return LossSums(loss, nll, correct)


class ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradients in one sweep over the chunks; `backward` only scales them."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor,
                smoothing: float) -> tuple[Tensor, Tensor]:
        """Compute in the format of `features`; return smoothed and plain loss. Shapes: as `compute_cross_entropy`."""
        rows, dtype = count_chunk_rows(weight.shape[0], features.element_size()), features.dtype
        sweep = ChunkSweep.over(features, weight.to(dtype), None if bias is None else bias.to(dtype), smoothing)
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
class ChunkSweep:
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
    def over(cls, features: Tensor, weight: Tensor, bias: Tensor | None, smoothing: float) -> ChunkSweep:
        """Begin with empty sums."""
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        return cls(features, weight, bias, smoothing, features_gradient=torch.empty_like(features),
                   weight_gradient=torch.zeros_like(weight, dtype=torch.float32),
                   bias_gradient=None if bias is None else torch.zeros_like(bias, dtype=torch.float32),
                   loss=total, nll=total.clone())

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


def compute_sampled_cross_entropy(features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *,
                                  samples: int) -> LossSums:
    """Sum the loss of the targets against drawn tokens; a drawn token that is a row's own target does not count there.

    Drawn with torch's generator, which the loop seeds for each step and its rows. Source: Jean et al. 2015, §3.1,
    arXiv:1412.2007. Shapes: features [N, D], weight [V, D], bias [V], targets [N].
    """
    drawn, tries = draw_token_sample(len(weight), samples, targets.device)
    ids = torch.cat([targets, drawn])
    rows, offsets = weight[ids], -compute_inclusion(ids, len(weight), tries).log().float()
    if bias is not None:
        offsets = offsets + bias[ids]
    count = len(targets)
    own = (features * rows[:count]).sum(-1).float() + offsets[:count]
    others = linear(features, rows[count:], None).float() + offsets[count:]
    others = others.masked_fill(drawn == targets[:, None], -math.inf)
    loss = (torch.logsumexp(torch.cat([own[:, None], others], dim=1), dim=1) - own).sum()
    return LossSums(loss, loss.detach(), torch.zeros_like(loss.detach()))


def draw_token_sample(vocab: int, samples: int, device: torch.device) -> tuple[Tensor, int]:
    """Draw different tokens log-uniformly; return them, and how many draws it took. Shapes: [S]."""
    drawn = torch.empty(0, dtype=torch.long)
    first = torch.empty(0, dtype=torch.long)
    while len(first) < samples:
        more = torch.exp(torch.rand(4 * samples, dtype=torch.float64) * math.log(vocab + 1)).long() - 1
        drawn = torch.cat([drawn, more.clamp(0, vocab - 1)])
        seen = torch.full((vocab,), len(drawn), dtype=torch.long)
        seen.scatter_reduce_(0, drawn, torch.arange(len(drawn)), reduce="amin")
        first = seen[seen < len(drawn)].sort().values  # where each token comes first, in order
    places = first[:samples]
    return drawn[places].to(device), int(places[-1]) + 1


def compute_inclusion(ids: Tensor, vocab: int, tries: int) -> Tensor:
    """Return how likely a token is among the drawn ones, after `tries` draws. Shapes: [N] -> the same."""
    chance = torch.log1p(1 / (ids.double() + 1)) / math.log(vocab + 1)
    return -torch.expm1(tries * torch.log1p(-chance))
