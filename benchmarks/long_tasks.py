"""A task that short context cannot solve, learned from nothing: the colour of a key in 8,192 tokens of a novel.

`python -m benchmarks long_tasks`. What is finished is kept in `runs/long_tasks`, and is not done again.
"""

from __future__ import annotations

from benchmarks import long_keys
from benchmarks.long_runs import RUNS
from benchmarks.section import Section


def measure(quick: bool) -> Section:
    """Learn what this machine has the texts of."""
    about = f"{long_keys.ABOUT} In brackets the 95 % interval over rows."
    if missing := long_keys.missing():
        return Section("Long tasks", about, [], [f"Not measured: {', '.join(missing)} not beside the repository."])
    return Section("Long tasks", about, long_keys.rows(quick=quick),
                   [f"`{RUNS}` holds the rows, and every run with its settings."])
