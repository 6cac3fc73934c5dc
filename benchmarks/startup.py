"""How long it takes until something happens: importing the library, `saucier --help`, and an error."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.section import Row, Section, at_most

IMPORT = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
OTHER = "transformers.models.gpt2.modeling_gpt2"


def seconds_to_import(module: str) -> float:
    """Import in a fresh process, and return the seconds of the import alone."""
    done = subprocess.run([sys.executable, "-c", IMPORT.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


WRONG = ("cook gpt-nano foo=1", "plan gpt-nano x=1", "compare nope gpt-nano --budget tokens=1e6",
         "finetune classification", "finetune classification task.text=nope --data a.tsv --held-out a.tsv --model M",
         "predict nowhere a.tsv", "evaluate nowhere")
"""Mistyped commands, in a folder with the file a.tsv and without M."""


def seconds_to_run(words: str, *, fails: bool = False, folder: Path | None = None) -> float:
    """Run `saucier` with some words and return the seconds of the whole process."""
    script = Path(sys.executable).with_name("saucier")
    command = [str(script)] if script.is_file() else [sys.executable, "-c", "from saucier.cli import main; main()"]
    begin = time.perf_counter()
    done = subprocess.run([*command, *words.split()], capture_output=True, check=not fails, cwd=folder)
    assert not fails or done.returncode == 2, done.stderr
    return time.perf_counter() - begin


def seconds_to_refuse() -> list[float]:
    """Return the seconds that each of the mistyped commands takes to say so."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.tsv").write_text("text\tlabel\ngood\tx\nbad\ty\n", encoding="utf-8")
        return [seconds_to_run(words, fails=True, folder=Path(folder)) for words in WRONG]


def one_turn() -> tuple[float, ...]:
    """Return the seconds of the help, of our import, of torch's and of the other library's, and of what is wrong."""
    return (seconds_to_run("--help"), *map(seconds_to_import, ("saucier", "torch", OTHER)), *seconds_to_refuse())


def measure(quick: bool) -> Section:
    """Take turns; the first turn only warms the disk's cache, and is all that a quick look takes."""
    warming, rounds = (0, 1) if quick else (1, 9)
    turns = [one_turn() for _ in range(warming + rounds)][warming:]
    shown, ours, torch, theirs, *refused = (statistics.median(column) for column in zip(*turns, strict=True))
    return Section("Starting", "Median of fresh processes, one after the other.", [
        at_most("`saucier --help`, the whole process", shown, 0.3, "s"),
        at_most("`import saucier`", ours, 0.1, "s"),
        *(at_most(f"`saucier {words}`: what is wrong is said", seconds, 1.0, "s")
          for words, seconds in zip(WRONG, refused, strict=True)),
        Row("for comparison: `import torch`; a model class of `transformers`", "", f"{torch:.2f} s; {theirs:.2f} s")])
