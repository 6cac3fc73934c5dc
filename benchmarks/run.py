"""`make bench`: run the benchmarks that are named (all of them by default) and write RESULTS.md.

What is not run this time keeps its last figures, each section with its own date and machine. A benchmark that fails, or
lacks its data or a library, is one row with the reason, which is not written; the others run on. The exit code is 1
where one failed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
import traceback
from contextlib import ExitStack, chdir
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))

from benchmarks.section import LackingError, Section, markdown, not_measured  # noqa: E402 - the path is set above

NAMES = ("startup", "opening", "reading", "cleaning", "data_side", "attention", "encoder", "long_inputs", "families",
         "training", "finetuning", "decoding", "engines", "shakespeare", "titles", "reasons", "sentence_order", "nanos",
         "distilbert", "long_tasks", "small_files", "store", "open_questions", "hops", "ask", "layers", "compression",
         "realm", "retrieval", "rag", "tasks", "multi30k", "back_translation")
"""Shortest first. `shakespeare` takes 5 minutes, `nanos`, `tasks`, `multi30k`, `back_translation`, `ask` and `realm` up
to an hour, `distilbert` more than one, `compression` several, `retrieval` minutes on a GPU and a night on a CPU; `rag`
is for a GPU alone."""
AGAINST = ("startup", "opening", "encoder", "long_inputs", "families", "training", "decoding", "engines")
LIBRARIES = dict.fromkeys(AGAINST, ("transformers",)) | {"finetuning": ("transformers", "accelerate")}
"""What a benchmark compares with, of the group `bench`."""
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
    with ExitStack() as stack:
        if arguments.quick:
            stack.enter_context(chdir(stack.enter_context(TemporaryDirectory())))
        done = [attempted(name, arguments.quick) for name in arguments.names or NAMES]
    sys.exit(0 if all(done) else 1)


def attempted(name: str, quick: bool) -> bool:
    """Run one benchmark, print its section, and keep what is not quick. Return whether nothing failed."""
    begin, failed, measured = time.perf_counter(), False, False
    print(f"{name} ...", file=sys.stderr, flush=True)
    try:
        section, measured = measure(name, quick), True
    except LackingError as error:
        section = not_measured(name, str(error))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in one section, the others are still wanted
        traceback.print_exc()
        reason = next(iter(str(error).splitlines()), "")
        section, failed = not_measured(name, f"{type(error).__name__}: {reason}"), True
    print(markdown(section, stamp()), flush=True)
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    if measured and not quick:
        keep(name, section)
    return not failed


def measure(name: str, quick: bool) -> Section:
    """Run one benchmark; its module is imported only now. Raises `LackingError` for what this machine has not."""
    missing = [library for library in LIBRARIES.get(name, ()) if importlib.util.find_spec(library) is None]
    if missing:
        raise LackingError(f"{', '.join(missing)} is not installed; pip install 'saucier[bench]'")
    section: Section = importlib.import_module(f"benchmarks.{name}").measure(quick)
    return section


def stamp() -> str:
    """Return when and on what this is measured."""
    import torch

    from saucier.machine import describe_machine

    threads = torch.get_num_threads()
    return f"{datetime.now(UTC):%Y-%m-%d}, {describe_machine()}, torch {torch.__version__}, {threads} threads"


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
