"""Cooking a recipe with the command line, as a person does, and reading what the run folder says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.race import ROOT
from benchmarks.section import LackingError

SHARED = ROOT.parent / "shared" / "data"
"""Real text, which is beside the repository and never inside it."""


def needed(*parts: str | Path) -> Path:
    """Return a file or folder of the shared data. Raises `LackingError` where this machine has none."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        raise LackingError(f"it needs the shared data next to the repository, {path}")
    return path


def saucier(*arguments: str) -> str:
    """Run the command line; what it says goes to the screen, what it answers is returned."""
    done = subprocess.run([sys.executable, "-m", "saucier", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def cooked(recipe: str, run: Path, arguments: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Cook a recipe into a new folder; return the seconds of the whole job, and its results."""
    begin = time.perf_counter()
    saucier("cook", recipe, "--out", str(run), *arguments)
    seconds = time.perf_counter() - begin
    results: dict[str, Any] = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    return seconds, results


def kept(recipe: str, run: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Cook a recipe, or `--from=MODEL`, unless its folder holds a finished run, and return its results."""
    if not (run / "evaluation.json").is_file():
        cooked(recipe, run, arguments)
    results: dict[str, Any] = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    return results


def plan_note(run: Path, results: dict[str, Any]) -> str:
    """Say how near the plan came to what was measured."""
    path = run / "plan.json"
    if not path.is_file():
        return "The run was not planned."
    plan, cost = json.loads(path.read_text(encoding="utf-8")), results["cost"]
    time_off = cost["phases"]["train"] / plan["seconds"] - 1
    memory_off = cost["peak_memory"] / plan["peak_memory"] - 1
    return (f"Plan against measured: training {plan['seconds']:.0f} s against {cost['phases']['train']:.0f} s "
            f"({time_off:+.0%}), peak memory {plan['peak_memory'] / 1e6:.0f} MB against "
            f"{cost['peak_memory'] / 1e6:.0f} MB ({memory_off:+.0%}).")
