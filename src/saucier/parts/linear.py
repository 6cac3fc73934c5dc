"""Linear maps by the faster library, the activation functions, and both in one operation.

Float32 goes through oneDNN on processors whose maker MKL does not favour: measured on an EPYC with AVX-512, 108
GFLOP/s
a core against 235. bfloat16 is multiplied in float32, a piece of the matrix at a time, where the processor has no
instructions for it and torch would emulate them: benchmarks/families.py shows whole models 2.4 to 3.7 times as fast.
Elsewhere, and in a compiled model, every product is `torch.nn.functional.linear`.

Letters: I inputs, O outputs, N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from saucier import config as c

gelu_tanh = partial(F.gelu, approximate="tanh")
"""The tanh approximation of GELU. Source: Hendrycks and Gimpel 2016, §2, arXiv:1606.08415."""


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

FEW_ROWS = 2
"""Rows below which torch's own float32 product is as fast."""
FEW_EMULATED_ROWS = 32
"""Rows below which imitated bfloat16 products are as fast as float32 ones of a matrix that must be widened first."""
FEW_FUSED_ROWS = 32
"""Rows below which a product and what follows it stay two operations: a step of decoding has a few."""
WIDENED_AT_ONCE = 2**20
"""Values of a matrix that are widened at a time, so that they stay in the processor's cache."""

FUSED_ACTIVATIONS: dict[c.Activation, tuple[str, list[float], str]] = {
    "relu": ("relu", [], ""), "silu": ("swish", [], ""), "gelu": ("gelu", [], "none"),
    "gelu_tanh": ("gelu", [], "tanh"),
}
"""Activations that oneDNN applies to a product before it is written: its name for them, and their settings."""


@cache
def has_onednn() -> bool:
    """Say whether this torch has oneDNN's products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def onednn_pays() -> bool:
    """Say whether this processor multiplies float32 faster through oneDNN than through MKL."""
    try:
        maker = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "AuthenticAMD" in maker and torch.backends.mkl.is_available() and has_onednn()


@cache
def emulates_bfloat16() -> bool:
    """Say whether this processor has no instructions for bfloat16 products, or oneDNN is set to use none of them."""
    has = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return not (has and onednn_takes_bfloat16())


@cache
def onednn_takes_bfloat16() -> bool:
    """Say whether oneDNN takes bfloat16 on this processor: from the first AVX-512 on, where no setting forbids it."""
    return has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `left @ right.T + bias`, without gradients. Shapes: [..., I], [O, I], [O] -> [..., O]."""
    if left.dtype == torch.bfloat16:
        return multiply_widened(left, right, bias)
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], ""))


def multiply_widened(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product of bfloat16 tensors, made in float32. Shapes: as `multiply`."""
    rows = left.float()
    mapped = left.new_empty(*left.shape[:-1], right.shape[0])
    step = max(1, WIDENED_AT_ONCE // right.shape[1])
    for start in range(0, right.shape[0], step):
        piece = slice(start, start + step)
        mapped[..., piece] = F.linear(rows, right[piece].float(), None if bias is None else bias[piece].float())
    return mapped


def may_choose(x: Tensor, weight: Tensor) -> bool:
    """Say whether the way of a product is ours to choose: of one format, on the processor, and not traced."""
    return (x.dtype == weight.dtype and x.device.type == weight.device.type == "cpu"
            and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")
            and x.numel() > 0 and weight.numel() > 0)


def suits_multiply(x: Tensor, weight: Tensor) -> bool:
    """Say whether `multiply` is to multiply these."""
    if not may_choose(x, weight):
        return False
    if x.dtype == torch.float32:
        return onednn_pays() and x.numel() >= FEW_ROWS * x.shape[-1]
    return x.dtype == torch.bfloat16 and emulates_bfloat16() and x.numel() >= FEW_EMULATED_ROWS * x.shape[-1]


def is_plain_linear(layer: nn.Module) -> TypeGuard[Linear]:
    """Say whether a map is a product and nothing else: not rewritten, and nobody hooked to it."""
    return type(layer) is Linear and not layer._forward_hooks and not layer._forward_pre_hooks


def fuses(layer: nn.Module, x: Tensor) -> bool:
    """Say whether oneDNN is to multiply this by a plain map, and may do more to the result before it is written."""
    if not is_plain_linear(layer) or torch.is_grad_enabled() or not may_choose(x, layer.weight):
        return False
    if x.numel() < FEW_FUSED_ROWS * x.shape[-1] or not has_onednn():
        return False
    return onednn_pays() if x.dtype == torch.float32 else x.dtype == torch.bfloat16 and not emulates_bfloat16()


def matmul_t(left: Tensor, right: Tensor) -> Tensor:
    """Return `left @ right.T`, by the faster library, without gradients. Shapes: [N, I], [O, I] -> [N, O]."""
    return multiply(left, right) if suits_multiply(left, right) else left @ right.T


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T + bias`, with gradients. Shapes: x [..., I], weight [O, I], bias [O] -> [..., O]."""
    if not suits_multiply(x, weight):
        return F.linear(x, weight, bias)
    x = x.contiguous()  # for slices oneDNN takes twice as long, and two thousand times as long for their gradients
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return cast(Tensor, Product.apply(x, weight, bias))  # type: ignore[no-untyped-call]
    return multiply(x, weight, bias)


def linear_activation(layer: nn.Module, x: Tensor, activation: c.Activation) -> Tensor:
    """Return `activation(layer(x))`, in one operation where oneDNN multiplies and nothing is learned.

    In bfloat16 the sum is then not rounded before the activation. Shapes: [..., I] -> [..., O].
    """
    if activation not in FUSED_ACTIVATIONS or not fuses(layer, x):
        return ACTIVATIONS[activation](layer(x))
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x.contiguous(), layer.weight, layer.bias,
                                                           *FUSED_ACTIVATIONS[activation]))


class Linear(nn.Linear):
    """`nn.Linear` by the faster library, and without starting values."""

    def reset_parameters(self) -> None:
        """Leave the weights to `initialize_weights` or to a checkpoint."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Shapes: [..., I] -> [..., O]."""
        return linear(input, self.weight, self.bias)


def first_outputs(layer: nn.Module, x: Tensor, count: int) -> Tensor:
    """Return the first outputs of a map; one that is not plain gives all, of which the others are dropped.

    Shapes: [..., I] -> [..., count].
    """
    if not is_plain_linear(layer):
        return cast(Tensor, layer(x))[..., :count]
    return linear(x, layer.weight[:count], None if layer.bias is None else layer.bias[:count])


def last_outputs(layer: nn.Module, x: Tensor, start: int) -> Tensor:
    """Return the outputs of a map from one on; one that is not plain gives all, of which the others are dropped.

    Shapes: [..., I] -> [..., O - start].
    """
    if not is_plain_linear(layer):
        return cast(Tensor, layer(x))[..., start:]
    return linear(x, layer.weight[start:], None if layer.bias is None else layer.bias[start:])


class Table(nn.Embedding):
    """`nn.Embedding` without starting values: drawing them on the meta device loads half of torch, in seconds."""

    def reset_parameters(self) -> None:
        """Leave the weights to `initialize_weights` or to a checkpoint."""


class PartlyBiased(Linear):
    """A map of which only some groups of rows have a bias; `bias` holds those rows alone."""

    def __init__(self, inputs: int, rows: tuple[int, ...], *, biased: tuple[bool, ...]) -> None:
        """Build a map to groups of rows, one after the other."""
        super().__init__(inputs, sum(rows), bias=False)
        self.rows, self.biased = rows, biased
        self.bias = nn.Parameter(torch.empty(sum(n for n, has in zip(rows, biased, strict=True) if has)))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Shapes: [..., I] -> [..., O]."""
        return linear(input, self.weight, spread_bias(self.bias, self.rows, self.biased))


def spread_bias(bias: Tensor, rows: tuple[int, ...], biased: tuple[bool, ...]) -> Tensor:
    """Return a bias of all rows, zero for the groups of `rows` that have none. Shapes: [biased rows] -> [rows]."""
    given = iter(bias.split([n for n, has in zip(rows, biased, strict=True) if has]))
    return torch.cat([next(given) if has else bias.new_zeros(n) for n, has in zip(rows, biased, strict=True)])


class LowRankLinear(nn.Module):
    """A map that is the product of two: `second(first(x))`, with the bias of the second.

    Source: Wang et al. 2020 (FLOP), §3.1, arXiv:1910.04732 (C eq 50), W = P·Q. In a model that is built anew both
    begin as any other matrix.
    """

    def __init__(self, inputs: int, rank: int, second: Linear) -> None:
        """Build the first map in front of a second one, which reads `rank` values."""
        super().__init__()
        self.in_features, self.out_features = inputs, second.out_features
        self.first, self.second = Linear(inputs, rank, bias=False), second

    @property
    def bias(self) -> Tensor | None:
        """The bias of the whole map."""
        return self.second.bias

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # the name in nn.Linear
        """Shapes: [..., I] -> [..., O]."""
        return self.second(self.first(input))  # type: ignore[no-any-return]


def build_map(inputs: int, outputs: int, *, bias: bool, rank: int | None) -> Linear | LowRankLinear:
    """Return a map of one matrix, or of a rank the product of two."""
    if rank is None:
        return Linear(inputs, outputs, bias=bias)
    return LowRankLinear(inputs, rank, Linear(rank, outputs, bias=bias))


def reading_weight(layer: Any) -> Tensor:
    """Return the matrix whose columns are the inputs of a map. Shapes: -> [O, I], or of a product [R, I]."""
    return cast(Tensor, layer.first.weight if isinstance(layer, LowRankLinear) else layer.weight)


def writing_weight(layer: Any) -> Tensor:
    """Return the matrix whose rows are the outputs of a map. Shapes: -> [O, I], or of a product [O, R]."""
    return cast(Tensor, layer.second.weight if isinstance(layer, LowRankLinear) else layer.weight)


def whole_weight(layer: Any) -> Tensor:
    """Return the matrix of a map, of a product multiplied out, in float64. Shapes: -> [O, I]."""
    if not isinstance(layer, LowRankLinear):
        return cast(Tensor, layer.weight.double())
    return layer.second.weight.double() @ layer.first.weight.double()


class Product(torch.autograd.Function):
    """`linear` with its gradients, all three by `multiply`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Shapes: as `linear`."""
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return multiply(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Shapes: gradient [..., O]."""
        x, weight = ctx.saved_tensors
        flat, rows = gradient.flatten(0, -2).contiguous(), x.flatten(0, -2).contiguous()
        for_x = multiply(gradient.contiguous(), weight.T) if ctx.needs_input_grad[0] else None
        for_weight = multiply(flat.T, rows.T) if ctx.needs_input_grad[1] else None  # of slices oneDNN has no fast one
        return for_x, for_weight, flat.sum(dim=0) if ctx.biased and ctx.needs_input_grad[2] else None


def count_flops(left: Sequence[int], right: Sequence[int], *rest: object, **options: object) -> int:
    """Return the FLOPs of one `multiply`, for torch's own counter. Shapes: left [..., I], right [O, I]."""
    return 2 * prod(left) * right[0]


if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    register_flop_formula(torch.ops.mkldnn._linear_pointwise)(count_flops)
