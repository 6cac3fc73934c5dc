"""The roads through the house: the files, and the functions entered, on the way of one job.

`python tools/roads.py MINILM_FOLDER GPT2_FOLDER` opens a model, runs it, generates and cooks, and prints for each how
many files of the package a line ran in and how many of its functions were entered. `--list JOB` names the files.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

JOBS = ("load", "forward", "generate", "cook")
Road = dict[str, set[str]]
"""The functions entered, by file."""


def walk(call: Callable[[], Any]) -> Road:
    """Call, and note every function of the package that is entered on the way, in this thread.

    Functions that a decorator of a library calls count; class bodies and comprehensions do not.
    """
    road: Road = defaultdict(set)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # no body of a class
        if event == "call" and "/src/saucier/" in code.co_filename and function:
            road[code.co_filename.partition("/src/")[2]].add(code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return dict(road)


def cook() -> None:
    """Cook the smallest language model for five steps, as the command line does."""
    from saucier.cli import main

    words = ["training.steps=5", "model.layers=1", "model.dim=32", "--no-calibrate"]
    with tempfile.TemporaryDirectory() as folder:
        if code := main(["cook", "gpt-nano", *words, "--out", f"{folder}/run"]):
            raise SystemExit(code)


def roads(minilm: Path, gpt2: Path, jobs: Sequence[str] = JOBS) -> dict[str, Road]:
    """Return the road of each job; what Python imports on the first call is left out by calling `load` once before."""
    import torch

    import saucier

    saucier.load(str(minilm), dtype="float32")
    model = saucier.load(str(gpt2), dtype="float32")
    ids = torch.tensor([[1, 2, 3]])
    calls: dict[str, Callable[[], Any]] = {
        "load": lambda: saucier.load(str(minilm), dtype="float32"), "forward": lambda: model(input_ids=ids),
        "generate": lambda: saucier.generate(model, ids, max_new_tokens=3), "cook": cook}
    return {job: walk(calls[job]) for job in jobs}


def main() -> None:
    """Print the length of every road, or the files on one."""
    parser = argparse.ArgumentParser(description="count the files and functions on the way of a job")
    parser.add_argument("minilm", type=Path, help="a folder of a published sentence encoder")
    parser.add_argument("gpt2", type=Path, help="a folder of a published language model")
    parser.add_argument("--list", metavar="JOB", choices=JOBS)
    options = parser.parse_args()
    found = roads(options.minilm, options.gpt2, JOBS if options.list is None else [options.list])
    if options.list is not None:
        print("\n".join(f"{file}: {', '.join(sorted(names))}" for file, names in sorted(found[options.list].items())))
        return
    for job, road in found.items():
        print(f"{job:10} {len(road):4} files {sum(map(len, road.values())):5} functions")


if __name__ == "__main__":
    main()
