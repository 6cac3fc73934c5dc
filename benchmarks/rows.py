"""Decoding of several rows by the kernels in C: rows a second in every number format, against one row, and against the
kernels of another checkout. GPT-2 124M shape with fewer layers, random weights, one thread, seconds of the processor.

`python -m benchmarks.rows --formats int8 int4 --against ../other/src`; it takes one process of each at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.engines import SHAPE, build_model
from benchmarks.race import Contender, Runner, Turn

ROWS = (1, 2, 4, 8, 16, 32)
PLACE, STEPS = 48, 4
"""Tokens that each row has already; steps of a turn."""


def decode(settings: dict[str, Any]) -> Turn:
    """Read one token of each row, for the next of `ROWS` at each turn; tokens a second of the processor."""
    from saucier.generation.decoding import Native
    from saucier.generation.native_feed import lower_model
    from saucier.native.session import Session

    plan = lower_model(build_model(settings), Native(format=settings["format"]), SHAPE["length"])
    sessions = cycle([Session(plan, rows, threads=1) for rows in ROWS])

    def turn() -> float:
        session = next(sessions)
        rows = np.arange(session.rows, dtype=np.int32)
        begin = time.process_time()
        for _ in range(STEPS):
            session.read(rows, rows, np.full_like(rows, PLACE), rows)
        return STEPS * session.rows / (time.process_time() - begin)

    for _ in ROWS:
        turn()
    return turn


CONTENDERS: dict[str, Contender] = {"decode": decode}


def compare(form: str, sources: Sequence[Path | None], layers: int, rounds: int) -> None:
    """Print the best of some rounds for each number of rows, and the ratio of the first source to the second."""
    runners = [Runner("benchmarks.rows", "decode", SHAPE | {"layers": layers, "format": form}, source=source)
               for source in sources]
    found = np.array([[[runner.turn() for runner in runners] for _ in ROWS] for _ in range(rounds)]).max(0)
    for runner in runners:
        runner.close()
    for rows, best in zip(ROWS, found, strict=True):
        ratio = "" if len(best) == 1 else f"  {best[0] / best[1]:.2f} times"
        print(f"{form:8} {rows:2} rows: " + "  ".join(f"{one:7.1f}" for one in best) + " tokens/s" + ratio, flush=True)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    from saucier.native.matrices import Format

    parser.add_argument("--formats", nargs="+", choices=get_args(Format), default=get_args(Format))
    parser.add_argument("--against", type=Path, help="the folder `src` of another checkout")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    for form in given.formats:
        compare(form, [None, *([given.against.resolve()] if given.against else [])], given.layers, given.rounds)


if __name__ == "__main__":
    main()
