"""The number format of the multiplications: chosen by what the hardware is, and applied with autocast over float32
weights.

Measured on two cores with AVX-512 bf16: autocast is as quick as bfloat16 weights with float32 copies, and keeps the
residual stream, norms and losses in float32. The choice is not timed: noise must not turn it, and a run that is
repeated must make it again.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from saucier.devices import multiplies_bfloat16

Dtype = Literal["float32", "bfloat16"]


def choose_dtype(wanted: Literal["auto", "float32", "bfloat16"], device: torch.device) -> tuple[Dtype, str]:
    """Return the format and a line that says why. `auto` is bfloat16 where the device has instructions for it."""
    if wanted != "auto":
        return wanted, f"{wanted} as asked"
    if multiplies_bfloat16(device):
        return "bfloat16", f"bfloat16: this {device.type} multiplies it faster"
    return "float32", f"float32: this {device.type} has no bfloat16 instructions"


def autocast(dtype: Dtype, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass runs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def moved(batch: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Put a batch on the model's device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
