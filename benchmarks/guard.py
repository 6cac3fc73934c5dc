"""Is the working tree as fast as an earlier commit? `make guard BASE=COMMIT`, or `python -m benchmarks.guard COMMIT`.

Twelve rows (`benchmarks.guard_rows`, of this tree) run against the source of both. A round of a row starts a fresh
process for each side; they take turns (A B A B), and each side's figure is its best turn, the one that other work on
the machine disturbed least. Which side begins changes from round to round. A row's figure is the median over rounds of
the ratio of times, head to base: above 1 is slower.

The rule: the interval of a row reaches from the smallest to the largest ratio of its rounds. Equal sides fall above and
below 1 alike, so with five rounds all lie above 1 once in 32. A row is *slower* where the whole interval is above 1 and
the median is above the limit; it is then measured a second time, and stays so only if the rounds of both times say it.
It is *faster* where that holds the other way round, without the second time; anything else is *no worse than noise*.
The interval shows how much of a change the row can see. `make guard BASE=HEAD` on a clean tree shows the noise alone.

Exit code 1 where a row is slower, 2 for a commit or a row that is not known.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.guard_rows import ROWS
from benchmarks.race import ROOT, Runner

ROUNDS, TURNS = 5, 3
LIMIT = 1.03
"""Ratio of times up to which a difference is of no interest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The ratios of a row's rounds: time of the head by that of the base."""

    ratios: tuple[float, ...]
    limit: float = LIMIT

    @property
    def median(self) -> float:
        """The row's figure."""
        return statistics.median(self.ratios)

    @property
    def slower(self) -> bool:
        """Whether the head is slower, and not by chance."""
        return min(self.ratios) > 1 and self.median > self.limit

    @property
    def verdict(self) -> str:
        """What is printed."""
        if self.slower:
            return "slower"
        return "faster" if max(self.ratios) < 1 and self.median < 1 / self.limit else "no worse than noise"


def one_round(name: str, sources: Sequence[Path], *, turns: int, swapped: bool) -> float:
    """Let base and head take turns in fresh processes, and return the ratio of their best times."""
    order = [*enumerate(sources)][::-1 if swapped else 1]
    runners: dict[int, Runner] = {}
    try:
        for side, source in order:
            settings = ROWS[name][2] | {"source": str(source)}
            runners[side] = Runner("benchmarks.guard_rows", name, settings, source=source)
        figures = [{side: runner.turn() for side, runner in runners.items()} for _ in range(turns)]
    finally:
        for runner in runners.values():
            runner.close()
    base, head = (max(figure[side] for figure in figures) for side in (0, 1))
    return base / head


def measured(name: str, sources: Sequence[Path], *, rounds: int, turns: int, limit: float) -> Outcome:
    """Measure a row; a second time where it seems to be slower."""
    found = Outcome(tuple(one_round(name, sources, turns=turns, swapped=bool(number % 2)) for number in range(rounds)),
                    limit)
    if not found.slower:
        return found
    again = (one_round(name, sources, turns=turns, swapped=bool(number % 2)) for number in range(rounds))
    return Outcome((*found.ratios, *again), limit)


def source_of(commit: str, folder: Path) -> Path:
    """Write the source of a commit into a folder, and return it. Raises `SystemExit` (2) for an unknown commit."""
    command = ["git", "archive", "--format=tar", f"{commit}^{{tree}}", "src"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        print(f"{commit}: git has no such commit with a folder src", file=sys.stderr)
        raise SystemExit(2)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def line(name: str, outcome: Outcome) -> str:
    """Lay out one row."""
    low, high = min(outcome.ratios), max(outcome.ratios)
    return (f"| {name} | {ROWS[name][0]} | {outcome.median:.3f} | {low:.3f}–{high:.3f} | {len(outcome.ratios)} | "
            f"{outcome.verdict} |")


def main() -> None:
    """Measure, print the table, and exit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__.partition("\n")[0])
    parser.add_argument("base", metavar="COMMIT", help="what to compare the working tree with")
    parser.add_argument("names", nargs="*", metavar="ROW", help=f"{', '.join(ROWS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"pairs of processes for a row ({ROUNDS})")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of each process ({TURNS})")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"ratio of no interest ({LIMIT})")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(ROWS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ROWS)}")
    slower = []
    with TemporaryDirectory() as folder:
        sources = (source_of(asked.base, Path(folder)), ROOT / "src")
        print("| row | what | time, head / base | interval | rounds | |\n|---|---|---|---|---|---|", flush=True)
        for name in asked.names or ROWS:
            found = measured(name, sources, rounds=asked.rounds, turns=asked.turns, limit=asked.limit)
            print(line(name, found), flush=True)
            slower += [name] if found.slower else []
    print(f"slower: {', '.join(slower)}" if slower else "nothing is slower")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
