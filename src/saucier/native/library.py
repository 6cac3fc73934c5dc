"""The C library: that of the wheel, or compiled once into the user's cache folder; loaded with plain pointers.

Its name is a digest of the sources, the flags and the processor's family, in the cache of the compiler too, so that it
is never out of date; two processes that compile at once each write a file of their own and rename it. `csrc/README.md`
walks through the sources; the structs below are those of `csrc/saucier.h`. `setup.py` imports this module before
anything is installed, so it imports the standard library alone.
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
from collections.abc import Sequence
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
         "-fno-sanitize=undefined", "-g0")
LIBRARIES = ("-lpthread", "-lm")
AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c")
AVX512_FLAGS = (*AVX2_FLAGS, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx512vnni",
                "-mprefer-vector-width=512")
PATHS: dict[str, tuple[str, ...]] = {
    "portable": (), "avx2": AVX2_FLAGS, "avxvnni": (*AVX2_FLAGS, "-mavxvnni"), "avx512": AVX512_FLAGS,
    "avx512bf16": (*AVX512_FLAGS, "-mavx512bf16"),
    "amx": (*AVX512_FLAGS, "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
    "neon": ("-mcpu=generic+dotprod",)}
"""Instruction set -> the flags that it is compiled with; a compiler for another family of processors refuses them."""
COMPILERS = ("cc", "gcc", "clang", "ziglang")
"""Where a compiler is looked for; the last is a package of PyPI."""
MOST_THREADS, BUFFERS, KEYS_AT_ONCE, PANEL_ROWS, TILE_TOKENS, SUMMED_INPUTS, MOST_TOKENS = 64, 8, 16, 16, 12, 32, 144
QUERIES_AT_ONCE, ROOM_TOKENS, SPARE_INPUTS, TOGETHER = 144, 48, 32, 16
"""As in `saucier.h`."""


class CMatrix(Structure):
    """`Matrix`."""

    _fields_ = [("codes", c_void_p), ("scales", c_void_p), ("rows", c_int64), ("inputs", c_int64), ("group", c_int64),
                ("format", c_int32), ("scale_format", c_int32), ("shifts", c_void_p)]


class CRelative(Structure):
    """`Relative`."""

    _fields_ = [("keys", c_void_p), ("values", c_void_p), ("reach", c_int64), ("tables", c_int32),
                ("meets_key", c_int32), ("scale", c_float)]


class CAttention(Structure):
    """`Attention`."""

    _fields_ = [("query", c_void_p), ("to", c_void_p), ("stride", c_int64), ("to_stride", c_int64), ("keys", c_void_p),
                ("values", c_void_p), ("stored", c_int32), ("capacity", c_int64), ("rows", c_void_p),
                ("places", c_void_p), ("heads", c_int32), ("groups", c_int32), ("head", c_int32), ("window", c_int32),
                ("scale", c_float), ("bias", c_void_p), ("reach", c_int64), ("sources", c_void_p),
                ("lengths", c_void_p), ("starts", c_void_p), ("relative", POINTER(CRelative)), ("seen", c_void_p)]


class CPanels(Structure):
    """`Panels`."""

    _fields_ = [("codes", c_void_p), ("scales", c_void_p), ("rows", c_int64), ("inputs", c_int64), ("group", c_int64),
                ("format", c_int32), ("scale_format", c_int32), ("step", c_float), ("shifts", c_void_p),
                ("order", c_void_p)]


class CDistances(Structure):
    """`Distances`."""

    _fields_ = [("panels", POINTER(CPanels)), ("rows", c_void_p), ("first", c_int64), ("last", c_int64)]


class CWideProduct(Structure):
    """`WideProduct`."""

    _fields_ = [("panels", POINTER(CPanels)), ("values", c_void_p), ("from_stride", c_int64), ("n", c_int64),
                ("tiles", c_void_p), ("token_scales", c_void_p), ("bias", c_void_p), ("to", c_void_p),
                ("stride", c_int64), ("activation", c_int32), ("adds", c_int32), ("activate", c_void_p),
                ("next", c_void_p), ("laid_out", c_int32)]


class CKernels(Structure):
    """`Kernels`: what is compiled for one instruction set."""

    _fields_ = [("name", c_char_p),
                ("weight", ctypes.CFUNCTYPE(c_float, POINTER(CMatrix), c_int64, c_int64)),
                ("norm", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_void_p, c_int64, c_void_p, c_void_p, c_float)),
                ("activate", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_int64)),
                ("gate", ctypes.CFUNCTYPE(None, c_int32, c_void_p, c_int64)),
                ("attend", ctypes.CFUNCTYPE(None, POINTER(CAttention), c_int64, c_int64, c_int64, c_void_p)),
                ("rotate", ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int64, c_int32, c_void_p)),
                ("log_softmax", ctypes.CFUNCTYPE(None, c_void_p, c_int64)),
                ("narrow", ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_void_p)), ("rows", c_void_p),
                ("together", c_int32)]


class COp(Structure):
    """`Op`."""

    _fields_ = [*((name, c_int32) for name in (
        "kind", "source", "to", "width", "activation", "adds", "norm", "neighbours", "slot", "heads", "groups", "head",
        "turned", "window", "offset")), ("scale", c_float), ("eps", c_float), ("matrix", POINTER(CMatrix)),
        ("gain", c_void_p), ("bias", c_void_p), ("table", c_void_p), ("reach", c_int64), ("padding", c_int32),
        *((name, c_int32) for name in ("experts", "top", "renormalized", "hidden", "gated")), ("second", c_void_p),
        ("relative", POINTER(CRelative)), ("seen", c_void_p), ("panels", POINTER(CPanels)), ("before", c_int64),
        ("after", c_int64), ("capacity", c_int32), ("rounded", c_int32), ("distances", POINTER(CDistances))]


class CPlan(Structure):
    """`Plan`."""

    _fields_ = [("ops", POINTER(COp)), ("count", c_int32)]


class CSession(Structure):
    """`Session`."""

    _fields_ = [("buffers", c_void_p * BUFFERS), ("strides", c_int64 * BUFFERS), ("keys", c_void_p),
                ("values", c_void_p), ("stored", c_int32), ("most", c_int64), ("rows", c_int64), ("capacity", c_int64),
                ("scores", c_void_p), ("score_stride", c_int64), ("tiles", c_void_p), ("token_scales", c_void_p),
                ("source_keys", c_void_p), ("source_values", c_void_p), ("sources", c_void_p),
                ("source_lengths", c_void_p), ("source_starts", c_void_p), ("source_places", c_int64),
                ("longest_source", c_int64)]


class CWorkspace(Structure):
    """`Workspace`."""

    _fields_ = [("buffers", c_void_p * BUFFERS), ("strides", c_int64 * BUFFERS), ("tiles", c_void_p * 2),
                ("token_scales", c_void_p * 2), ("attention", c_void_p), ("attention_stride", c_int64)]


class CBatch(Structure):
    """`Batch`."""

    _fields_ = [("workspace", CWorkspace), ("tokens", c_int64), ("rows", c_int64), ("starts", c_void_p),
                ("places", c_void_p), ("ids", c_void_p), ("segments", c_void_p), ("vectors", c_void_p),
                ("found", c_void_p)]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "saucier_kernels": (POINTER(CKernels), [c_char_p]),
    "saucier_best_path": (c_char_p, []),
    "saucier_run": (None, [c_char_p, POINTER(CPlan), POINTER(CSession), c_int64, *[c_void_p] * 4, c_int64, c_int32]),
    "saucier_encode": (None, [c_char_p, POINTER(CPlan), POINTER(CBatch), c_int64, POINTER(CWorkspace), c_int32]),
    "saucier_log_softmax": (None, [c_char_p, c_void_p, c_int64, c_int64, c_int32]),
    "saucier_multiply": (None, [c_char_p, POINTER(CWideProduct), c_int32])}
"""Function -> what it gives, and its arguments."""


@cache
def load_library() -> ctypes.CDLL:
    """Return the library: that of the wheel, that of the cache, or compiled. Raises `WorkError` without a compiler."""
    target = SOURCES.with_name(f"{name_library()}.so")
    if not target.is_file():
        command = find_compiler()
        target = cache_folder("native") / f"{name_library(command)}.so"
        if not target.is_file():
            compile_library(command, target)
    library = ctypes.CDLL(str(target))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def find_compiler(names: Sequence[str] = COMPILERS) -> tuple[str, ...]:
    """Return the command of a C compiler: that of `$CC`, or the first of some names. Raises `WorkError`."""
    for name in filter(None, (os.environ.get("CC"), *names)):
        if name == "ziglang" and importlib.util.find_spec(name) is not None:
            # without a word it compiles for the very processor that it runs on; this glibc is that of manylinux2014
            old = ("-target", f"{platform.machine()}-linux-gnu.2.17")
            return (sys.executable, "-P", "-m", name, "cc",
                    *(old if platform.libc_ver()[0] == "glibc" else ("-mcpu=baseline",)))
        program, *words = name.split() or (name,)
        if (found := shutil.which(program)) is not None:
            return (found, *words)
    raise WorkError("the native kernels need a C compiler, and there is none", where="engine",
                    remedy="install gcc, clang, or `pip install ziglang`; or use engine=None")


def name_library(command: tuple[str, ...] = ()) -> str:
    """Return a name for all that the compiled code depends on; of the wheel's, whoever compiled it."""
    version = subprocess.run([*command, "--version"], capture_output=True, check=False).stdout if command else b""
    found = hashlib.sha256(repr((FLAGS, PATHS, command, version, platform.system(), platform.machine())).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        found.update(source.name.encode() + source.read_bytes())
    return f"kernels-{found.hexdigest()[:24]}"


def compile_library(command: tuple[str, ...], target: Path) -> None:
    """Compile the sources, and put the library at `target` when it is whole. Raises `WorkError`."""
    with TemporaryDirectory(dir=target.parent, prefix="compiling-") as folder:
        whole = Path(folder) / "whole.so"
        run_compiler(command, ("-shared", *compile_sources(command, Path(folder)), "-o", str(whole), *LIBRARIES))
        whole.replace(target)


def compile_sources(command: tuple[str, ...], folder: Path) -> list[str]:
    """Compile every source, for every instruction set that the compiler knows; return the object files."""
    paths = {path: flags for path, flags in PATHS.items() if compiles(command, flags)}
    known = tuple(f"-DHAS_{path.upper()}" for path in paths)
    sources = [(name, f"-DPATH={path}", *flags) for path, flags in paths.items() for name in ("kernels.c", "rows.c")]
    sources += [(name, *known) for name in ("run.c", "encode.c", "experts.c", "pool.c")]
    objects = [str(folder / f"{number}.o") for number in range(len(sources))]
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(run_compiler, command), (
            (*FLAGS, *flags, "-c", str(SOURCES / name), "-o", made)
            for (name, *flags), made in zip(sources, objects, strict=True))))
    return objects


def compiles(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    """Say whether a compiler knows an instruction set: older ones do not know all, and none those of other families."""
    nothing = (*flags, "-x", "c", "-E", os.devnull, "-o", os.devnull)
    return not flags or not subprocess.run([*command, *nothing], capture_output=True).returncode


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
