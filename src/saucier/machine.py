"""What this machine and this process have: cores, memory, and how much of it we hold, from /proc where there is one;
and whether this process is that of a notebook.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import sys
from functools import cache
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def read_proc_bytes(path: Path, key: str) -> int | None:
    """Return a line `key:   123 kB` of a /proc file in bytes, or None where there is none."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), None)


def resident_memory() -> int:
    """Return the bytes of memory that this process holds now; its peak where the system does not say."""
    return read_proc_bytes(STATUS, "VmRSS") or peak_resident_memory()


def peak_resident_memory() -> int:
    """Return the most bytes that this process has held since its start, or since `reset_peak_memory`."""
    found = read_proc_bytes(STATUS, "VmHWM")
    if found is not None:
        return found
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak_memory() -> bool:
    """Start counting the peak again; return whether the system can do that."""
    with contextlib.suppress(OSError):
        RESET.write_text("5")
        return True
    return False


def trim_memory() -> None:
    """Give freed memory back to the system, so that `resident` says what is really in use. Only glibc can."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int | None:
    """Return the bytes that a new program could use, or None where the system does not say."""
    return read_proc_bytes(Path("/proc/meminfo"), "MemAvailable")


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def read_cpuinfo(key: str) -> str | None:
    """Return what the system says of the first processor under a key, such as "vendor_id"; None where it does not."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.partition(":")[0].strip() == key:
                return line.partition(":")[2].strip()
    return None


def processor_name() -> str:
    """Return the processor's name, as far as the system knows it."""
    return read_cpuinfo("model name") or platform.processor() or platform.machine()


def in_notebook() -> bool:
    """Say whether a notebook shows what this process prints. IPython is asked only where a notebook has imported it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def describe_machine() -> str:
    """Return one line about the machine, without anything that names it."""
    return f"{count_cores()} cores of {processor_name()}, {platform.system()}, Python {platform.python_version()}"
