"""Where and in which number format a model runs: by what the hardware is, never by a timing that noise could turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from saucier.errors import InputError, expect, nearest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Names that `dtype=` takes beside "auto"."""


def choose_device(device: str | torch.device) -> torch.device:
    """Return the device asked for, or the best one here. Raises `InputError` for one that is not here."""
    expect(device, (str, torch.device), "device", "give auto, cpu, cuda or mps")
    if device == "auto":
        return best_device()
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"unknown device {device!r}", where="device",
                         remedy="known: auto, cpu, cuda, cuda:0, mps") from error
    if found.type not in ("cpu", "meta"):
        kind: Any = getattr(torch.backends if found.type == "mps" else torch, found.type, None)
        count = kind.device_count() if hasattr(kind, "device_count") else 1
        if not hasattr(kind, "is_available") or not kind.is_available() or (found.index or 0) >= count:
            raise InputError(f"there is no device {str(found)!r} here", where="device",
                             remedy=f"use auto, which is {best_device()} here, or cpu")
    return found


def choose_real_device(device: str | torch.device) -> torch.device:
    """Return the device asked for, one that holds numbers. Raises `InputError` as `choose_device`, and for `meta`."""
    found = choose_device(device)
    if found.type == "meta":
        raise InputError("holds no numbers", where="device", remedy="use auto or cpu; saucier.build knows meta")
    return found


def best_device() -> torch.device:
    """Return CUDA, then MPS, then the CPU: the first that is here."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def choose_dtype(dtype: str | torch.dtype, device: torch.device, names: Sequence[str] = ("auto",)) -> torch.dtype:
    """Return the number format asked for, or the one that this device multiplies fastest, which the last of `names` is.

    Raises `InputError` for an unknown name; `names`: those that the caller takes beside the formats.
    """
    expect(dtype, (str, torch.dtype), "dtype", f"give one of {', '.join([*names, *DTYPES])}")
    if isinstance(dtype, torch.dtype):
        refuse_narrow(dtype)
        return dtype
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype != names[-1]:
        raise InputError(f"unknown dtype {dtype!r}", where="dtype", remedy=nearest(str(dtype), [*names, *DTYPES]))
    return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32


def refuse_narrow(dtype: torch.dtype) -> None:
    """Raise `InputError` for a number format that no model computes in."""
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise InputError(f"a model does not compute in {dtype}", where="dtype", remedy=f"use {', '.join(DTYPES)}")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Say whether this device has instructions for bfloat16 products."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
