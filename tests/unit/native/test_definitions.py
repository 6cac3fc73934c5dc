"""The kernels against plain definitions in C, which run without Python: here, and where QEMU is the processor."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saucier.native import library

DEFINITIONS = Path(__file__).with_name("definitions.c")


def compile_definitions(command: tuple[str, ...], target: Path, *more: str) -> str:
    """Link the program with a library or object files; return its path."""
    library.run_compiler(command, ("-O1", "-fno-sanitize=undefined", f"-I{library.SOURCES}", str(DEFINITIONS), *more,
                                   "-o", str(target), *library.LIBRARIES))
    return str(target)


def run(*words: str) -> list[str]:
    """Return the instruction sets that were tried, and the one that is chosen."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_on_this_processor(tmp_path: Path) -> None:
    loaded = library.load_library()
    program = compile_definitions(library.find_compiler(), tmp_path / "definitions", loaded._name)
    assert run(program) == [*library.list_paths(), f"best {loaded.saucier_best_path().decode()}"]


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "zig"])
def test_on_aarch64(tmp_path: Path, compiler: str) -> None:
    """NEON's dot products are used where the processor has them."""
    emulator, cross = shutil.which("qemu-aarch64-static"), "aarch64-linux-gnu-gcc"
    if emulator is None:
        pytest.skip("no qemu-aarch64-static here (Debian's qemu-user-static)")
    if (shutil.which(cross) if compiler == "gcc" else importlib.util.find_spec("ziglang")) is None:
        pytest.skip("no compiler for aarch64 here (Debian's gcc-aarch64-linux-gnu, or ziglang of PyPI)")
    command = (cross,) if compiler == "gcc" else (sys.executable, "-P", "-m", "ziglang", "cc", "-target",
                                                  "aarch64-linux-musl")
    objects = library.compile_sources(command, tmp_path)
    program = compile_definitions(command, tmp_path / "definitions", *objects, "-static")
    assert run(emulator, "-cpu", "cortex-a76", program) == ["portable", "neon", "best neon"]
    assert run(emulator, "-cpu", "cortex-a53", program) == ["portable", "best portable"]
