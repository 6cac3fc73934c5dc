"""`make bench`: run the benchmarks that are named (all of them by default) and write RESULTS.md.

What is not run this time keeps its last figures, each section with its own date and machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))

from benchmarks.section import Section, markdown  # noqa: E402 - the path is set above

NAMES = ("startup", "opening", "reading", "cleaning", "data_side", "attention", "encoder", "long_inputs", "families",
         "training", "finetuning", "decoding", "shakespeare", "titles", "reasons", "nanos", "long_tasks", "tasks",
         "multi30k", "back_translation")
"""Shortest first. `shakespeare` takes 5 minutes, `nanos`, `tasks`, `multi30k` and `back_translation` up to an hour."""
FIGURES, RESULTS = FOLDER / "results.json", FOLDER / "RESULTS.md"
HEAD = """# Results

Written by `make bench`. Every ratio comes from one run on one machine: both sides in processes of their own, taking
turns (A B A B), with the same number of threads; the figure is the median of the turns. Absolute figures mean little
elsewhere; ratios mean more.

"""


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description="Measure Saucier against others; writes benchmarks/RESULTS.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all runs; nothing is written")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        begin = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        section = measure(name, arguments.quick)
        print(markdown(section, stamp()))
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        if not arguments.quick:
            keep(name, section)


def measure(name: str, quick: bool) -> Section:
    """Run one benchmark; its module is imported only now."""
    section: Section = importlib.import_module(f"benchmarks.{name}").measure(quick)
    return section


def stamp() -> str:
    """Return when and on what this is measured."""
    import torch

    from saucier.inspection.machine import description

    threads = torch.get_num_threads()
    return f"{datetime.now(UTC):%Y-%m-%d}, {description()}, torch {torch.__version__}, {threads} threads"


def keep(name: str, section: Section) -> None:
    """Put a section into results.json, and write RESULTS.md anew."""
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.is_file() else {}
    figures[name] = {"stamp": stamp(), "section": section.as_dict()}
    FIGURES.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    known = [figures[one] for one in NAMES if one in figures]
    parts = [markdown(Section.from_dict(one["section"]), one["stamp"]) for one in known]
    RESULTS.write_text(HEAD + "\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
