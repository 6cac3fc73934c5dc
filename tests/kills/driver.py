"""Runs a verb in a process of its own and ends it at a chosen event: killed, or with a disk that is full from there on.

An event is a change that the process asks of the file system below its working folder: a file opened for writing, a
rename, a removal, a new folder. Python tells of each before it happens (`sys.addaudithook`), so moment N is the same in
every repetition, and N = 0, 1, 2, ... meets every state that a kill can leave between two changes. A pause after an
event meets states inside of them. Processes are forked from a server that has imported everything, which takes a
second or two once instead of every time.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
PRELOADED = ["saucier.recipes", "saucier.jobs.pretraining.cook", "saucier.jobs.finetuning.settings",
             "saucier.jobs.finetuning.finetune", "saucier.jobs.comparison.compare", "saucier.jobs.cleaning.clean",
             "saucier.jobs.compression.compress",
             "saucier.jobs.prompting.evaluation", "saucier.jobs.prompting.prompted_model", "saucier.jobs.convert",
             "saucier.jobs.writing.batches", "torch._dynamo", "pyarrow.parquet", "matplotlib.backends.backend_svg",
             "sacrebleu", "jinja2.sandbox", "sklearn.linear_model", "sklearn.feature_extraction.text", "scipy.stats",
             "pytest"]
"""What the server imports, so that the processes that are forked from it need not."""

EVENTS = "events.out.tfevents."
"""TensorBoard's files, one for each start; their names hold the time."""
ROOM = 2**20
"""Bytes that a process may say."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a process ends, and how."""

    event: int
    how: Literal["kill", "full"] = "kill"
    """`full`: every write from there on fails, as on a disk without space."""
    pause: float = 0.0
    """Seconds between the event and the kill."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    code: int
    """-9: killed."""
    said: str
    events: tuple[str, ...]
    """What it asked of the file system; of a killed one the last was not done."""


def run(verb: Sequence[str], folder: Path, moment: Moment | None = None, seconds: float = 300) -> Ended:
    """Run a verb with `folder` as the working folder; fails where it takes longer than `seconds`."""
    return called(command, (list(verb),), folder, moment, seconds)


def called(work: Callable[..., int], given: tuple[Any, ...], folder: Path, moment: Moment | None = None,
           seconds: float = 300) -> Ended:
    """Call a function in a process of its own; what it returns is the exit code."""
    with speaking(folder) as run_console:
        process = started(work, given, folder, moment)
        process.join(seconds)
        said = os.read(run_console, ROOM).decode(errors="replace")
    events = Path(f"{folder}.trace").read_text(encoding="utf-8", errors="replace")
    if process.exitcode is None:
        process.kill()
        raise AssertionError(f"{given} was not done after {seconds} s:\n{said}")
    return Ended(process.exitcode, said, tuple(events.splitlines()))


@contextmanager
def speaking(folder: Path) -> Iterator[int]:
    """Yield what a process that works in a folder says: a pipe, since no file can grow on a disk that is full."""
    path = Path(f"{folder}.log")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    run_console = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(run_console, fcntl.F_SETPIPE_SZ, ROOM)
    try:
        os.write(run_console, b"\n")  # it is never empty
        yield run_console
    finally:
        os.close(run_console)


def started(work: Callable[..., int], given: tuple[Any, ...], folder: Path,
            moment: Moment | None = None) -> BaseProcess:
    """Start a process that calls a function with `folder` as its working folder."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=child, args=(work, given, str(folder), moment))
    process.start()
    return process


def command(verb: list[str]) -> int:
    """Be the command line."""
    from saucier.cli import main

    return main(verb)


def child(work: Callable[..., int], given: tuple[Any, ...], folder: str, moment: Moment | None) -> None:
    """Be the process: one thread, output into a file, the moment set."""
    import torch

    torch.set_num_threads(1)
    os.chdir(folder)
    log = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    trace = os.open(f"{folder}.trace", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(Watch(os.path.realpath(folder), moment, trace))
    sys.exit(work(*given))


class Watch:
    """Counts the events, and ends the process at one of them."""

    def __init__(self, folder: str, moment: Moment | None, trace: int) -> None:
        """Nothing has happened yet."""
        self.folder, self.moment, self.trace, self.seen, self.busy = folder, moment, trace, 0, False

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        """Hear of an event before it happens."""
        if self.busy or not (event in CHANGES or (event == "open" and writes(given))):
            return
        self.busy = True
        if self.is_ours(event, given):
            os.write(self.trace, f"{self.seen} {event} {given[0]}\n".encode(errors="replace"))
            self.seen += 1
            if self.moment is not None and self.seen > self.moment.event:
                self.end(self.moment)
                return
        self.busy = False

    def is_ours(self, event: str, given: tuple[Any, ...]) -> bool:
        """Whether an event is below the working folder; a removal within an opened folder has no path.

        TensorBoard writes from a thread of its own, at no moment of the job.
        """
        if EVENTS in str(given[0]):
            return False
        if event in ("os.remove", "os.rmdir") and given[-1] != -1:
            return True
        return isinstance(given[0], (str, bytes, os.PathLike)) and os.path.realpath(
            os.fsdecode(given[0])).startswith(self.folder + os.sep)

    def end(self, moment: Moment) -> None:
        """End it; what happens from there on is no longer counted."""
        if moment.how == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        elif moment.pause:
            threading.Thread(target=lambda: (time.sleep(moment.pause), kill()), daemon=True).start()
        else:
            kill()


def kill() -> None:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)


def writes(given: tuple[Any, ...]) -> bool:
    """Whether a file is opened for writing."""
    _, mode, flags = given
    return any(one in mode for one in "wax+") if isinstance(mode, str) else bool(
        flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


TIMES = {"seconds", "tokens_per_second", "begun", "ended", "parts", "phases", "cost"}
"""Keys of JSON documents that tell the time, or how often a run was begun."""
SPENT = re.compile(r"<h2>Cost</h2>.*?</section>|<svg.*?</svg>|<dt>parts</dt>.*?</dd>|\d{4}-\d\d-\d\d[T ][\d:+]*"
                   r"|[\d,.]+(\s[kMGT])?( | |<small>)?(ms|s|min|h|[GMk]?B|tokens/s|tokens a second|[GMT]?FLOP/s)\b",
                   re.DOTALL)
"""The same in a report: what is told, and what is drawn as long as it took."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, without times and dates, and every empty folder."""
    found = [path for path in sorted(folder.rglob("*")) if not path.name.startswith(EVENTS)]
    return {str(path.relative_to(folder)): timeless(path) if path.is_file() else b""
            for path in found if path.is_file() or not any(path.iterdir())}


def timeless(path: Path) -> bytes:
    """Return a file's bytes without what tells the time."""
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        documents = [json.loads(data)] if path.suffix == ".json" else [json.loads(line) for line in data.splitlines()]
        return "\n".join(json.dumps(without_times(one)) for one in documents).encode()
    return SPENT.sub("TIME", data.decode()).encode() if path.suffix == ".html" else data


def without_times(value: Any) -> Any:
    """Take the keys of times out of a JSON document."""
    if isinstance(value, list):
        return [without_times(one) for one in value]
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items() if key not in TIMES}
    return value


def differences(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Say what differs in two folders."""
    found = [f"{name}: only in the {'second' if name in other else 'first'}"
             for name in sorted(one.keys() ^ other.keys())]
    for name in sorted(name for name in one.keys() & other.keys() if one[name] != other[name]):
        first = next((n for n, (a, b) in enumerate(zip(one[name], other[name], strict=False)) if a != b), 0)
        near = slice(max(0, first - 80), first + 80)
        found.append(f"{name}: {one[name][near]!r} and {other[name][near]!r}")
    return found


@dataclass(frozen=True, slots=True)
class Kitchen:
    """Where verbs are run: always in the same place, since some of what they write names it."""

    inputs: Path
    place: Path

    def run(self, verb: Sequence[str], *moments: Moment) -> tuple[list[Ended], dict[str, bytes]]:
        """Begin with the inputs alone; end the verb at each moment, then let it run; return what came of it all."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.inputs, self.place)
        ended = [run(verb, self.place, one) for one in (*moments, None)]
        return ended, contents(self.place)
