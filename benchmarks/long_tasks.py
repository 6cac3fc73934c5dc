"""Tasks that short context cannot solve, learned from nothing: a key in 8,192 tokens, copies, nested expressions,
reviews.

`python -m benchmarks long_tasks`. What is finished is kept in `runs/long_tasks`, and is not done again.
"""

from __future__ import annotations

from benchmarks import long_copies, long_keys, long_listops, long_reviews
from benchmarks.long_runs import RUNS
from benchmarks.section import Section


def measure(quick: bool) -> Section:
    """Learn what this machine has the texts of."""
    about = (f"{long_keys.ABOUT} In brackets the 95 % interval over rows. {long_copies.ABOUT} {long_listops.ABOUT} "
             f"{long_reviews.ABOUT}")
    needed = (*long_keys.BOOKS, long_keys.HELD_OUT_BOOK, *long_listops.FILES, *long_reviews.FILES)
    missing = [path.name for path in needed if not path.is_file()]
    notes = [f"`{RUNS}` holds the rows, and every run with its settings."]
    if missing:
        notes.append(f"Keys, ListOps and reviews were not measured: {', '.join(missing)} not beside the repository.")
    found = [] if missing else [
        *long_keys.rows(quick=quick), *long_listops.rows(quick=quick), *long_reviews.rows(quick=quick)]
    return Section("Long tasks", about, [*found, *long_copies.rows(quick=quick)], notes)
