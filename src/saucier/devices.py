"""Where a model runs: its device, its number format, and how the C library allocates memory for it.

All of it is chosen by what the hardware is, never by a timing that noise could change.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from saucier.errors import InputError, expect, suggest_name
from saucier.machine import read_cpuinfo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Names that `dtype=` takes in addition to "auto"."""


def is_traced() -> bool:
    """Say whether a pass is compiled or traced, so that it must not depend on the values of its example."""
    return (torch.compiler.is_compiling() or torch._C._is_tracing()
            or torch._C._len_torch_dispatch_stack() > 0  # fake tensors, `make_fx`, what counts operations
            or torch._C._functorch.peek_interpreter_stack() is not None)


def choose_device(device: str | torch.device) -> torch.device:
    """Return the requested device, or the best one here. Raises `InputError` for one that is not here."""
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
    """Return the requested device, one that holds numbers. Raises `InputError` as `choose_device`, and for `meta`."""
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
    """Return the requested number format, or the one that this device multiplies fastest, which the last of `names` is.

    Raises `InputError` for an unknown name; `names`: those that the caller takes in addition to the formats.
    """
    expect(dtype, (str, torch.dtype), "dtype", f"give one of {', '.join([*names, *DTYPES])}")
    if isinstance(dtype, torch.dtype):
        refuse_narrow(dtype)
        return dtype
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype != names[-1]:
        raise InputError(f"unknown dtype {dtype!r}", where="dtype", remedy=suggest_name(str(dtype), [*names, *DTYPES]))
    return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32


def refuse_narrow(dtype: torch.dtype) -> None:
    """Raise `InputError` for a number format that no model computes in."""
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise InputError(f"a model does not compute in {dtype}", where="dtype", remedy=f"use {', '.join(DTYPES)}")


def multiplies_bfloat16(device: torch.device) -> bool:
    """Say whether this device has instructions with which products of bfloat16 are the faster ones.

    Intel's processors have them in tiles (AMX). Their products of registers (AVX-512 BF16) begin in every other cycle:
    measured on a Xeon, torch multiplies at 85 to 90 GFLOP/s with them, and at 150 to 175 in float32.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    registers = torch.cpu._is_avx512_bf16_supported() and read_cpuinfo("vendor_id") != "GenuineIntel"
    return device.type == "cpu" and bool(registers or torch.cpu._is_amx_tile_supported())


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Names and numbers from glibc's malloc.h."""

LARGEST_KEPT = 32 * 2**20
"""Bytes of the largest block that glibc ever learns to keep by itself (DEFAULT_MMAP_THRESHOLD_MAX)."""

KEPT_PRODUCTS = "32"
"""How many prepared products oneDNN keeps, each with its own memory, instead of 1024: where the shapes of batches vary,
that halves the peak and costs no time (transformer-small, 200 steps: 1.9 GB against 2.4 to 3.5)."""


@cache
def keep_freed_memory() -> bool:
    """Keep all freed memory for the rest of this process, as training does. Returns whether it is so.

    Measured, this alone makes a training step 1.4 to 1.7 times as fast on a CPU. Batches of one shape need no more
    memory; those of ever new shapes leave holes (a nano BERT grew from 0.7 to 1.7 GB in 500 steps, and no further).
    Giving the holes back now and then was tried: 13% less memory for 6% more time.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KEPT_PRODUCTS)
    return set_malloc_option(M_MMAP_MAX, 0) and set_malloc_option(M_TRIM_THRESHOLD, 2**31 - 1)


@cache
def keep_small_blocks() -> bool:
    """Keep freed blocks of up to 32 MB, and 64 MB in all, as a model that is loaded does. Returns whether it is so.

    glibc comes to these limits by itself once a program has freed a block of that size; weights that are mapped from
    a file are no such blocks. Measured on one pass of ELECTRA-small (4 texts of 128 tokens): 3,700 pages zeroed again
    each time, a tenth of the pass. Limits that are set in the environment are kept, and so is `keep_freed_memory`.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    configured = "MALLOC_MMAP_THRESHOLD_" in os.environ or "malloc.mmap_threshold" in tunables
    if configured or keep_freed_memory.cache_info().currsize:
        return False
    return set_malloc_option(M_MMAP_THRESHOLD, LARGEST_KEPT) and set_malloc_option(M_TRIM_THRESHOLD, 2 * LARGEST_KEPT)


def set_malloc_option(name: int, value: int) -> bool:
    """Set one of glibc's numbers. Returns whether there is a glibc that took it."""
    return platform.libc_ver()[0] == "glibc" and bool(ctypes.CDLL(None).mallopt(name, value))


AutocastDtype = Literal["float32", "bfloat16"]


def choose_autocast_dtype(dtype: Literal["auto", "float32", "bfloat16"],
                          device: torch.device) -> tuple[AutocastDtype, str]:
    """Return the format and a line that says why. `auto` is bfloat16 where the device multiplies it faster."""
    if dtype != "auto":
        return dtype, f"{dtype} as asked"
    if multiplies_bfloat16(device):
        return "bfloat16", f"bfloat16: this {device.type} multiplies it faster"
    return "float32", f"float32: this {device.type} multiplies bfloat16 no faster"


def autocast(dtype: AutocastDtype, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass runs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == "bfloat16")


def move_batch(batch: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Put a batch on the model's device."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
