"""One case of fuzzing: what was damaged, what is tried with it, and the verdict on what came of that.

A step must end in an `InputError` of one line that names what, where and the remedy, or in a sound result. Everything
else is a fault: another exception, a step that takes too long, and memory beyond twice the files (plus `ROOM`).
"""

from __future__ import annotations

import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from saucier import errors
from saucier.errors import InputError
from saucier.machine import peak_resident_memory, reset_peak_memory, resident_memory

SECONDS = 10.0
"""Processor time that a step may take."""
CLOCK = 300.0
"""Seconds by the clock: a step that waits for something uses no processor."""
ROOM = 128 * 2**20
"""Bytes that a step may take in addition to twice the files: libraries that are loaded late, caches, working memory."""
LONGEST = 3 * errors.LONGEST_PART + 20
"""Letters of an error, which has three parts at most."""
SHOWN = 300
"""Letters of an exception that are shown."""
PACKAGE = "saucier"
Step = Callable[[], object]


class UnsoundError(Exception):
    """A step gave a result that is not what its config declares."""


class LateError(BaseException):
    """A step took too long; not an `Exception`, so that nothing below catches it."""


@dataclass(frozen=True, slots=True)
class Case:
    """What was damaged, and what is tried with it."""

    told: str
    """The damage in words."""
    steps: tuple[Step, ...]
    size: int = 0
    """Bytes of the files that the steps read."""
    room: int = ROOM
    """Bytes that a step may take in addition."""
    many_lines: bool = False
    """Whether an error may have a line for each fault, as those of recipes have, which name the place in each line."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case."""

    number: int
    told: str
    refused: int = 0
    """Steps that ended in an `InputError`."""
    sound: int = 0
    """Steps that gave a result."""
    faults: tuple[str, ...] = ()
    seconds: float = 0.0
    """Processor time of the slowest step."""
    memory: int = 0
    """Most bytes that a step took."""


Draw = Callable[[Random, Path, Path], Case]
"""Makes a case of (drawn numbers, the folder of whole artifacts, an empty folder for the damaged ones)."""


def number_of(kind: str, seed: int, number: int) -> Random:
    """Return the random numbers of a case, which depend on nothing else."""
    return Random(f"{kind}/{seed}/{number}")


def tried(draw: Draw, drawn: Random, number: int, stock: Path, place: Path, *, trace: bool = False) -> Verdict:
    """Make a case and judge all its steps. `trace`: print the traceback of a fault."""
    case = draw(drawn, stock, place)
    found = [judged(case, step, trace=trace) for step in case.steps]
    faults = tuple(one for one, _, _ in found if one not in ("refused", "sound"))
    return Verdict(number, case.told, sum(one == "refused" for one, _, _ in found),
                   sum(one == "sound" for one, _, _ in found), faults,
                   max((seconds for _, seconds, _ in found), default=0.0),
                   max((memory for _, _, memory in found), default=0))


def judged(case: Case, step: Step, *, trace: bool = False) -> tuple[str, float, int]:
    """Run a step; return "refused", "sound" or the fault in words, the processor time, and the memory it took."""
    reset_peak_memory()
    before, begin = resident_memory(), time.process_time()
    verdict = "sound"
    try:
        with deadline(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step()
    except InputError as error:
        verdict = fault_of(error, many_lines=case.many_lines) or "refused"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever else comes is what this tool looks for
        verdict = f"{type(error).__name__}: {shown(error)} {place_of(error)}"
        if trace:
            traceback.print_exception(error)
    spent, memory = time.process_time() - begin, max(0, peak_resident_memory() - before)
    if verdict in ("refused", "sound") and memory > 2 * case.size + case.room:
        verdict = f"memory: {memory:,} bytes for files of {case.size:,}"
    return verdict, spent, memory


def shown(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    return ascii(str(error))[1:-1][:SHOWN]


def place_of(error: BaseException) -> str:
    """Return where in the package an exception came from: its innermost line there."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if f"/{PACKAGE}/" in one.filename]
    if not frames:
        return ""
    last = frames[-1]
    return f"[{last.filename.rpartition(f'/{PACKAGE}/')[2]}:{last.lineno} {last.name}]"


def fault_of(error: InputError, *, many_lines: bool) -> str | None:
    """Say what is wrong with an error that a person is to read; None where it is as it should be."""
    text = str(error)
    lines = text.split("\n") if many_lines else [text]
    if any(not one.isprintable() for one in lines):
        return f"error with unprintable characters: {shown(error)} {place_of(error)}"
    if any(len(one) > LONGEST for one in lines):
        return f"error of {len(text):,} characters: {shown(error)} {place_of(error)}"
    if not many_lines and not (error.where and error.remedy):
        return f"error without {'remedy' if error.where else 'place'}: {shown(error)} {place_of(error)}"
    if many_lines and any(": " not in one for one in lines):
        return f"error without place: {shown(error)} {place_of(error)}"
    return None


@contextmanager
def deadline() -> Iterator[None]:
    """Raise `LateError` where something takes too much processor time, or waits too long."""

    def late(number: int, frame: FrameType | None) -> None:
        what = f"{SECONDS:g} seconds of processor time" if number == signal.SIGPROF else f"{CLOCK:g} seconds"
        raise LateError(f"more than {what}")

    before = [signal.signal(one, late) for one in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, CLOCK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(one, handler)


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
