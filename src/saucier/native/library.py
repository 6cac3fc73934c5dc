"""The C library: compiled once into the user's cache folder, and loaded with plain pointers.

Its name there is a digest of the sources, the compiler, the flags and the processor's family, so that nothing there is
ever out of date; two processes that compile at once each write a file of their own and rename it. `csrc/README.md`
walks through the sources; the structs below are those of `csrc/saucier.h`.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from saucier.errors import WorkError
from saucier.files import cache_folder
from saucier.machine import count_cores

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-O3", "-std=c11", "-fPIC", "-fvisibility=default", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math",
         "-fno-sanitize=undefined")
AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c")
AVX512_FLAGS = (*AVX2_FLAGS, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512vnni",
                "-mprefer-vector-width=512")
PATHS: dict[str, tuple[str, ...]] = {
    "portable": (), "avx2": AVX2_FLAGS, "avxvnni": (*AVX2_FLAGS, "-mavxvnni"), "avx512": AVX512_FLAGS,
    "avx512bf16": (*AVX512_FLAGS, "-mavx512bf16")}
"""Instruction set -> the flags that it is compiled with; all but the first are those of x86."""
MOST_THREADS, BUFFERS, KEYS_AT_ONCE, PANEL_ROWS, TILE_TOKENS, SUMMED_INPUTS, MOST_TOKENS = 64, 8, 8, 16, 12, 32, 48
"""As in `saucier.h`; the last: tokens of one pass of a decoder, at most."""
PANEL_ROOM = 512 * PANEL_ROWS
"""Numbers of a part of a panel, as in `rows.c`."""


class CMatrix(Structure):
    """`Matrix`."""

    _fields_ = [("codes", c_void_p), ("scales", c_void_p), ("rows", c_int64), ("inputs", c_int64), ("group", c_int64),
                ("format", c_int32), ("scale_format", c_int32)]


class CProduct(Structure):
    """`Product`."""

    _fields_ = [("matrix", POINTER(CMatrix)), ("values", c_void_p), ("from_stride", c_int64), ("n", c_int64),
                ("bias", c_void_p), ("to", c_void_p), ("stride", c_int64), ("activation", c_int32), ("adds", c_int32)]


class CRelative(Structure):
    """`Relative`."""

    _fields_ = [("keys", c_void_p), ("values", c_void_p), ("reach", c_int64), ("tables", c_int32),
                ("meets_key", c_int32), ("scale", c_float)]


class CAttention(Structure):
    """`Attention`."""

    _fields_ = [("query", c_void_p), ("to", c_void_p), ("stride", c_int64), ("to_stride", c_int64), ("keys", c_void_p),
                ("values", c_void_p), ("capacity", c_int64), ("rows", c_void_p), ("places", c_void_p),
                ("heads", c_int32), ("groups", c_int32), ("head", c_int32), ("window", c_int32), ("scale", c_float),
                ("bias", c_void_p), ("reach", c_int64), ("sources", c_void_p), ("lengths", c_void_p),
                ("starts", c_void_p), ("relative", POINTER(CRelative)), ("seen", c_void_p)]


class CPanels(Structure):
    """`Panels`."""

    _fields_ = [("codes", c_void_p), ("scales", c_void_p), ("rows", c_int64), ("inputs", c_int64), ("group", c_int64),
                ("format", c_int32), ("scale_format", c_int32)]


class CWideProduct(Structure):
    """`WideProduct`."""

    _fields_ = [("panels", POINTER(CPanels)), ("values", c_void_p), ("from_stride", c_int64), ("n", c_int64),
                ("tiles", c_void_p), ("token_scales", c_void_p), ("bias", c_void_p), ("to", c_void_p),
                ("stride", c_int64), ("activation", c_int32), ("adds", c_int32), ("activate", c_void_p)]


class CKernels(Structure):
    """`Kernels`: what is compiled for one instruction set."""

    _fields_ = [("name", c_char_p),
                ("weight", ctypes.CFUNCTYPE(c_float, POINTER(CMatrix), c_int64, c_int64)),
                ("product", ctypes.CFUNCTYPE(None, POINTER(CProduct), c_int64, c_int64)),
                ("norm", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_float)),
                ("activate", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_int64)),
                ("gate", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_int64)),
                ("attend", ctypes.CFUNCTYPE(None, POINTER(CAttention), c_int64, c_int64, c_void_p)),
                ("rotate", ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int64, c_int32, c_void_p)),
                ("rows", c_void_p)]


class COp(Structure):
    """`Op`."""

    _fields_ = [*((name, c_int32) for name in (
        "kind", "source", "to", "width", "activation", "adds", "norm", "neighbours", "slot", "heads", "groups", "head",
        "turned", "window", "offset")), ("scale", c_float), ("eps", c_float), ("matrix", POINTER(CMatrix)),
        ("gain", c_void_p), ("bias", c_void_p), ("table", c_void_p), ("reach", c_int64), ("padding", c_int32),
        *((name, c_int32) for name in ("experts", "top", "renormalized", "hidden", "gated")), ("second", c_void_p),
        ("relative", POINTER(CRelative)), ("seen", c_void_p), ("panels", POINTER(CPanels)), ("before", c_int64),
        ("after", c_int64)]


class CPlan(Structure):
    """`Plan`."""

    _fields_ = [("ops", POINTER(COp)), ("count", c_int32)]


class CSession(Structure):
    """`Session`."""

    _fields_ = [("buffers", c_void_p * BUFFERS), ("strides", c_int64 * BUFFERS), ("keys", c_void_p),
                ("values", c_void_p), ("most", c_int64), ("rows", c_int64), ("capacity", c_int64), ("scores", c_void_p),
                ("score_stride", c_int64), ("tiles", c_void_p), ("token_scales", c_void_p),
                ("source_keys", c_void_p), ("source_values", c_void_p), ("sources", c_void_p),
                ("source_lengths", c_void_p), ("source_starts", c_void_p), ("source_places", c_int64),
                ("longest_source", c_int64)]


class CBatch(Structure):
    """`Batch`."""

    _fields_ = [("buffers", c_void_p * BUFFERS), ("strides", c_int64 * BUFFERS), ("tokens", c_int64), ("rows", c_int64),
                ("starts", c_void_p), ("places", c_void_p), ("tiles", c_void_p), ("token_scales", c_void_p),
                ("room", c_void_p), ("room_stride", c_int64)]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "saucier_kernels": (POINTER(CKernels), [c_char_p]),
    "saucier_best_path": (c_char_p, []),
    "saucier_product": (None, [c_char_p, POINTER(CProduct), c_int32]),
    "saucier_run": (None, [c_char_p, POINTER(CPlan), POINTER(CSession), c_int64, *[c_void_p] * 4, c_int64, c_int32]),
    "saucier_encode": (None, [c_char_p, POINTER(CPlan), POINTER(CBatch), c_int32]),
    "saucier_multiply": (None, [c_char_p, POINTER(CWideProduct), c_void_p, c_int64, c_int32])}
"""Function -> what it gives, and its arguments."""


@cache
def load_library() -> ctypes.CDLL:
    """Return the library, compiled first where the cache has it not. Raises `WorkError` without a compiler."""
    command = find_compiler()
    folder = cache_folder("native")
    target = folder / f"{name_library(command)}.so"
    if not target.is_file():
        compile_library(command, target)
    library = ctypes.CDLL(str(target))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def find_compiler() -> tuple[str, ...]:
    """Return the command of a C compiler: `$CC`, one of the system, or that of the package `ziglang`."""
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if (found := shutil.which(name)) is not None:
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise WorkError("the native kernels need a C compiler, and there is none", where="engine",
                    remedy="install gcc, clang, or `pip install ziglang`; or use engine=None")


def processor_family() -> str:
    """Return `x86`, which has instruction sets of its own, or the machine's own name."""
    machine = platform.machine().lower()
    return "x86" if machine in ("x86_64", "amd64") else machine


def name_library(command: tuple[str, ...]) -> str:
    """Return a name for all that the compiled code depends on."""
    version = subprocess.run([*command, "--version"], capture_output=True, check=False).stdout
    found = hashlib.sha256(repr((FLAGS, PATHS, command, version, platform.system(), processor_family())).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        found.update(source.name.encode() + source.read_bytes())
    return f"kernels-{found.hexdigest()[:24]}"


def compile_library(command: tuple[str, ...], target: Path) -> None:
    """Compile the sources, and put the library at `target` when it is whole. Raises `WorkError`."""
    paths = {path: flags for path, flags in PATHS.items() if path == "portable" or compiles(command, flags)}
    known = tuple(f"-DHAS_{path.upper()}" for path in paths)
    sources = [(name, f"-DPATH={path}", *flags) for path, flags in paths.items() for name in ("kernels.c", "rows.c")]
    sources += [(name, *known) for name in ("run.c", "encode.c", "pool.c")]
    with TemporaryDirectory(dir=target.parent, prefix="compiling-") as folder, ThreadPoolExecutor() as pool:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        list(pool.map(partial(run_compiler, command), (
            (*FLAGS, *flags, "-c", str(SOURCES / name), "-o", made)
            for (name, *flags), made in zip(sources, objects, strict=True))))
        whole = Path(folder) / "whole.so"
        run_compiler(command, ("-shared", *objects, "-o", str(whole), "-lpthread", "-lm"))
        whole.replace(target)


def compiles(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    """Say whether a compiler knows an instruction set: older ones do not know all."""
    nothing = (*flags, "-x", "c", "-E", os.devnull, "-o", os.devnull)
    return processor_family() == "x86" and not subprocess.run([*command, *nothing], capture_output=True).returncode


def run_compiler(command: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Run the compiler. Raises `WorkError` with the first thing that it complains of."""
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
        raise WorkError(f"the native kernels do not compile with {command[0]}: {reason}", where="engine",
                        remedy="name another compiler in $CC; or use engine=None")


def list_paths() -> list[str]:
    """Return the instruction sets that the library was compiled for and this processor runs."""
    return [path for path in PATHS if load_library().saucier_kernels(path.encode())]


@cache
def count_threads() -> int:
    """Return how many threads a pass gets: the cores of this process, within what its control group may use."""
    cores = min(count_cores(), MOST_THREADS)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))
