"""What the C library is told about freed memory, seen from the pages that a process is given."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

BLOCKS = """
import ctypes, resource
from saucier import devices
print({call})
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
for again in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [library.malloc(12 * 2**20) for _ in range(4)]
    for block in blocks:
        library.memset(block, 1, 12 * 2**20)
    for block in blocks:
        library.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Takes, fills and frees 48 MB three times, and says how many pages the last time took."""


def pages(call: str, **environment: str) -> tuple[str, int]:
    """Return what the call said, and the pages."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc is told anything")
    done = subprocess.run([sys.executable, "-c", BLOCKS.format(call=call)], capture_output=True, text=True, check=True,
                          env={"PYTHONPATH": ":".join(sys.path), **environment})
    said, count = done.stdout.split()
    return said, int(count)


@pytest.mark.slow
def test_left_alone_the_library_gives_the_pages_back() -> None:
    """Otherwise the tests below show nothing."""
    assert pages("None")[1] > 1000


@pytest.mark.slow
@pytest.mark.parametrize("call", ["devices.keep_small_blocks()", "devices.keep_freed_memory()"])
def test_freed_memory_is_used_again(call: str) -> None:
    said, count = pages(call)
    assert said == "True"
    assert count < 100


@pytest.mark.slow
def test_limits_that_the_environment_sets_are_obeyed() -> None:
    assert pages("devices.keep_small_blocks()", MALLOC_MMAP_THRESHOLD_="1048576")[0] == "False"
    assert pages("devices.keep_small_blocks()", GLIBC_TUNABLES="glibc.malloc.mmap_threshold=1048576")[0] == "False"


@pytest.mark.slow
def test_a_process_that_keeps_all_is_not_told_to_keep_less() -> None:
    said, count = pages("[devices.keep_freed_memory(), devices.keep_small_blocks()][1]")
    assert said == "False"
    assert count < 100
