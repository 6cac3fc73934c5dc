"""Comparing two or more contenders fairly: each in a process of its own, taking turns, and the median of the turns.

A contender is named by module and key: the module has `CONTENDERS`, which maps the key to a function that prepares
everything and returns the turn: a function without arguments that returns its figure (larger is better).
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

Turn = Callable[[], float]
Contender = Callable[[dict[str, Any]], Turn]


TRIED = 0
"""Rounds of a quick look: each takes one turn, all in this process, to see that it runs."""


class Runner:
    """A contender in its own process; it waits quietly while the others take their turns."""

    def __init__(self, module: str, key: str, settings: Mapping[str, Any], *, source: Path | None = None) -> None:
        """Start the process, and wait until it is prepared. `source`: the package is imported from this folder."""
        command = [sys.executable, "-m", "benchmarks.race", module, key, json.dumps(dict(settings))]
        self.key = key
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=None if source is None else os.environ | {"PYTHONPATH": str(source)})
        self.answer()

    def answer(self) -> str:
        """Read one line of what the process says. Raises `RuntimeError` when it has died; it told why on the screen."""
        assert self.process.stdout is not None, "made with a pipe"
        while line := self.process.stdout.readline():
            if line.startswith("> "):
                return line[2:].strip()
        raise RuntimeError(f"the contender {self.key!r} ended with code {self.process.wait()}")

    def turn(self) -> float:
        """Let it take one turn."""
        assert self.process.stdin is not None, "made with a pipe"
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.answer())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None, "made with a pipe"
        self.process.stdin.close()
        self.process.wait(timeout=60)


def race(module: str, contenders: Mapping[str, Mapping[str, Any]], rounds: int) -> dict[str, float]:
    """Let the contenders (key of `CONTENDERS`, or `key: remark` -> settings) take turns: A B A B. Return medians."""
    if rounds == TRIED:
        return {name: tried(module, name.split(":")[0], settings) for name, settings in contenders.items()}
    runners = {name: Runner(module, name.split(":")[0], settings) for name, settings in contenders.items()}
    try:
        figures: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(rounds):
            for name, runner in runners.items():
                figures[name].append(runner.turn())
    finally:
        for runner in runners.values():
            runner.close()
    for name, values in figures.items():
        print(f"  {name}: " + " ".join(f"{value:.4g}" for value in values), file=sys.stderr)
    return {name: statistics.median(values) for name, values in figures.items()}


def prepared(module: str, key: str, settings: Mapping[str, Any]) -> Turn:
    """Return the turn of a contender that has prepared everything in this process."""
    contenders: dict[str, Contender] = importlib.import_module(module).CONTENDERS
    return contenders[key](dict(settings))


def tried(module: str, key: str, settings: Mapping[str, Any]) -> float:
    """Let a contender take one turn in this process."""
    quiet()
    return prepared(module, key, settings)()


def quiet() -> None:
    """Keep `transformers` from talking between the figures."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def serve(module: str, key: str, settings: dict[str, Any]) -> None:
    """Be a contender: prepare, then take a turn for every line that comes in."""
    turn = prepared(module, key, settings)
    print("> ready", flush=True)
    for _ in sys.stdin:
        print(f"> {turn()!r}", flush=True)


if __name__ == "__main__":
    quiet()
    serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
