"""The number format of the multiplications: chosen by trying, and applied with autocast over float32 weights.

Measured on two cores with AVX-512 bf16: autocast is as quick as bfloat16 weights with float32 copies, and keeps the
residual stream, norms and losses in float32.
"""

from __future__ import annotations

import time
from typing import Literal

import torch
from torch import Tensor

FASTER = 1.3
"""bfloat16 must be so many times faster to be chosen by itself."""

Dtype = Literal["float32", "bfloat16"]


def choose_dtype(wanted: Literal["auto", "float32", "bfloat16"], device: torch.device, dim: int = 512) -> tuple[Dtype, str]:
    """Return the format and a line that says why. `auto` multiplies matrices as wide as the model in both, and compares."""
    if wanted != "auto":
        return wanted, f"{wanted} as asked"
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bfloat16", "bfloat16: this GPU has it") if fast else ("float32", "float32: this GPU has no bfloat16")
    if device.type == "mps":
        return "float32", "float32: not compared on this device"
    ratio = seconds(device, torch.float32, dim) / seconds(device, torch.bfloat16, dim)
    name: Dtype = "bfloat16" if ratio > FASTER else "float32"
    return name, f"{name}: bfloat16 multiplies {ratio:.1f}x as fast as float32 here"


def seconds(device: torch.device, dtype: torch.dtype, dim: int, tries: int = 5) -> float:
    """Time one product of [1024, dim] and [dim, 4 dim]: the best of some tries, as others may use the machine."""
    left, right = torch.ones(1024, dim, device=device, dtype=dtype), torch.ones(4 * dim, dim, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(tries + 1):
        begin = time.perf_counter()
        torch.nn.functional.linear(left, right)
        best = min(best, time.perf_counter() - begin)
    return best


def autocast(dtype: Dtype, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass runs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def moved(batch: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Put a batch on the model's device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
