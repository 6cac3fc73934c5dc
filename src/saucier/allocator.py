"""Keeping freed memory instead of handing it back to the system, so that a training step does not page it in again.

glibc maps every large block anew and gives it back when freed; the system then zeroes each page again, which was a
third of a small model's step on 2 cores. Called by long work (training, benchmarks), never on import.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 2**31 - 1
"""Names and numbers of `mallopt(3)`."""


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed for the next block; return whether this system has that setting.

    Peak memory grows by what lies free between blocks: a few hundred megabytes in training.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(M_TRIM_THRESHOLD, LARGEST))
