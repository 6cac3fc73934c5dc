"""Where and in which number format a model runs: by what the hardware is, never by a timing that noise could turn."""

from __future__ import annotations

import torch

from saucier.errors import InputError, nearest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Names that `dtype=` takes beside "auto"."""


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device asked for, or the best one here."""
    if isinstance(device, torch.device):
        return device
    if device != "auto":
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise InputError(f"unknown device {device!r}", where="device",
                             remedy="known: auto, cpu, cuda, cuda:0, mps") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Return the number format asked for, or the one that this device multiplies fastest."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype != "auto":
        raise InputError(f"unknown dtype {dtype!r}", where="dtype", remedy=nearest(dtype, ["auto", *DTYPES]))
    return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32


def multiplies_bfloat16(device: torch.device) -> bool:
    """Say whether this device has instructions for bfloat16 products."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
