"""Tasks that short context cannot solve, learned from nothing: the colour of a key in 8,192 tokens, a copy in 4,096.

`python -m benchmarks long_tasks`. What is finished is kept in `runs/long_tasks`, and is not done again.
"""

from __future__ import annotations

from benchmarks import long_copies, long_keys
from benchmarks.long_runs import RUNS
from benchmarks.section import Section


def measure(quick: bool) -> Section:
    """Learn what this machine has the texts of."""
    about = f"{long_keys.ABOUT} In brackets the 95 % interval over rows. {long_copies.ABOUT}"
    missing = long_keys.missing()
    notes = [f"`{RUNS}` holds the rows, and every run with its settings.",
             *([f"The key was not measured: {', '.join(missing)} not beside the repository."] if missing else [])]
    keys = [] if missing else long_keys.rows(quick=quick)
    return Section("Long tasks", about, [*keys, *long_copies.rows(quick=quick)], notes)
