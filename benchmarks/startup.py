"""How long it takes until something happens: importing the library, and `saucier --help`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.section import Row, Section, at_most

IMPORT = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
OTHER = "transformers.models.gpt2.modeling_gpt2"


def seconds_to_import(module: str) -> float:
    """Import in a fresh process, and return the seconds of the import alone."""
    done = subprocess.run([sys.executable, "-c", IMPORT.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


def seconds_to_help() -> float:
    """Run `saucier --help` and return the seconds of the whole process."""
    script = Path(sys.executable).with_name("saucier")
    command = [str(script)] if script.is_file() else [sys.executable, "-c", "from saucier.cli import main; main()"]
    begin = time.perf_counter()
    subprocess.run([*command, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def one_turn() -> tuple[float, float, float, float]:
    """Return the seconds of the help, of our import, of torch's and of the other library's."""
    return seconds_to_help(), seconds_to_import("saucier"), seconds_to_import("torch"), seconds_to_import(OTHER)


def measure(quick: bool) -> Section:
    """Take turns; the first turn only warms the disk's cache, and is all that a quick look takes."""
    warming, rounds = (0, 1) if quick else (1, 9)
    turns = [one_turn() for _ in range(warming + rounds)][warming:]
    shown, ours, torch, theirs = (statistics.median(column) for column in zip(*turns, strict=True))
    return Section("Starting", "Median of fresh processes, one after the other.", [
        at_most("`saucier --help`, the whole process", shown, 0.3, "s"),
        at_most("`import saucier`", ours, 0.1, "s"),
        Row("for comparison: `import torch`; a model class of `transformers`", "", f"{torch:.2f} s; {theirs:.2f} s")])
