"""What makes float32 arithmetic give the same bits on all processors of one maker, and where bits were written.

`settings()` is for the environment of a new process: PyTorch and its libraries read these variables once, when they are
loaded. One thread, only instructions that every x86-64 processor has, and MKL's reproducible mode: its products are
still other ones on Intel's processors than on AMD's, in the last bit. What is written
under these settings (`make fingerprints`, the old artifacts in `tests/frozen`) is compared bit by bit; `stamp()` says
where it was written, so that a difference can be told from another build of PyTorch or another kind of processor.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

SETTINGS = {
    "OMP_NUM_THREADS": "1",  # sums are split by the number of threads
    "MKL_NUM_THREADS": "1",
    "MKL_CBWR": "COMPATIBLE",  # MKL's products: the same bits whatever instructions a processor has
    "ATEN_CPU_CAPABILITY": "default",  # PyTorch's own loops: no AVX2, no AVX-512, so sums have one order
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
}


def settings() -> dict[str, str]:
    """Return the environment of this process with the settings that make bits repeatable."""
    return {**os.environ, **SETTINGS}


def is_set() -> bool:
    """Say whether this process was started with the settings."""
    return all(os.environ.get(name) == value for name, value in SETTINGS.items())


def stamp() -> dict[str, str]:
    """Return what bits may still depend on: the build of PyTorch and the kind of machine."""
    import torch

    return {"torch": torch.__version__, "machine": platform.machine(), "processor": maker()}


def maker(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return who made the processor, as it says itself; "unknown" where the system does not tell."""
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "unknown")
