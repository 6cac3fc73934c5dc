"""How long it takes until something happens: importing the library, `saucier --help`, an error, and the first token."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engines import save_peer
from benchmarks.section import Row, Section, at_most

IMPORT = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"
SHAPE = {"dim": 768, "layers": 12, "heads": 12, "vocab": 50257, "length": 1024}
QUICK = SHAPE | {"dim": 64, "layers": 2, "heads": 2, "vocab": 512}
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


def seconds_to_first_token(model: Path, cache: Path) -> float:
    """Let a fresh process write the likeliest token in int8; return the seconds until something appears.

    Code is compiled to bytecode beforehand, as pip does it for what it installs.
    """
    words = ("generate", str(model), "w5w6w7", "--format", "int8", "--temperature", "0", "--tokens", "1")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "saucier", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=env | {"SAUCIER_CACHE": str(cache), "PYTHONPYCACHEPREFIX": str(cache / "code")}) as run:
        assert run.stdout is not None and run.stderr is not None, "they are pipes"
        shown = run.stdout.read(1)
        taken = time.perf_counter() - begin
        assert shown, run.stderr.read()
    return taken


def measure_first_tokens(quick: bool) -> list[Row]:
    """Take turns: a start for which nothing is packed yet, and two that find the matrices packed."""
    from saucier.files import cache_folder
    from saucier.native.library import load_library

    load_library()
    first, then = [], []
    with TemporaryDirectory() as place:
        model, cache = Path(place) / "model", Path(place) / "cache"
        save_peer(QUICK if quick else SHAPE, model)
        size = (model / "model.safetensors").stat().st_size
        shutil.copytree(cache_folder("native"), cache / "native")  # compiled kernels
        for _ in range(2 if quick else 6):
            shutil.rmtree(cache / "matrices", ignore_errors=True)
            first.append(seconds_to_first_token(model, cache))
            then += [seconds_to_first_token(model, cache) for _ in range(2)]
    what = f"`saucier generate` with a GPT-2 of {size / 1e6:.0f} MB, `--format int8`: to the first token"
    return [at_most(f"{what}, the first time", statistics.median(first[1:]), 2.0, "s"),  # the first compiles our code
            at_most(f"{what}, once packed", statistics.median(then), 0.6, "s")]


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
        *measure_first_tokens(quick),
        Row("for comparison: `import torch`; a model class of `transformers`", "", f"{torch:.2f} s; {theirs:.2f} s")])
