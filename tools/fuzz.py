"""Damage real artifacts and call the Python functions with bad values: an `InputError` in one line, or a sound result.

`python tools/fuzz.py folders|state|adapters|tasks|recipes|calls --number N --seed S` runs N cases, some hundred in a
process of their own, so that a crash is seen and told with its case. `--case K` runs one again, with the traceback.
Cases depend on kind, seed and number alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
               "CUDA_VISIBLE_DEVICES": ""}

from tools.fuzzing import KINDS, kind_of  # noqa: E402  # libraries read the environment when they are loaded
from tools.fuzzing.cases import CLOCK, ROOM, Draw, Verdict, number_of, tried  # noqa: E402  # so

BATCH = 500
"""Cases of one process; each begins with the libraries that are loaded late."""
QUICK = Path("/dev/shm")
"""A disk in memory, where there is one: what is written is synced many times a case."""
ADDRESSES = 6 * 2**30
"""Bytes of addresses that a process may take in addition to those it has: more is a fault, and must not stop others."""
STEPS = 8
"""Most steps of a case, for the time after which a silent process is ended."""
TOLD = 500
"""Cases after which a line is written."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases; return 1 where a fault was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--number", type=int, default=200, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, default=None, help="run this case alone, in this process")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="saucier-fuzz-", dir=QUICK if os.access(QUICK, os.W_OK) else None) as place:
        job = Job(asked.kind, asked.seed, Path(place))
        if asked.case is not None:
            return again(job, asked.case)
        return told(job, job.all(range(asked.first, asked.first + asked.number)), asked.number)


@dataclass(frozen=True, slots=True)
class Job:
    """Cases of one kind and seed, with a folder to work in."""

    kind: str
    seed: int
    place: Path

    @property
    def stock(self) -> Path:
        """The folder of whole artifacts."""
        return self.place / "whole"

    def one(self, draw: Draw, number: int, *, trace: bool = False) -> Verdict:
        """Run one case in this process."""
        work = self.place / "case"
        remove(work)
        work.mkdir(parents=True)
        self.stock.mkdir(exist_ok=True)
        verdict = tried(draw, number_of(self.kind, self.seed, number), number, self.stock, work, trace=trace)
        remove(work)
        return verdict

    def all(self, numbers: range) -> Iterator[Verdict]:
        """Run cases in processes of their own; one that ends early goes on with the next case in a new one."""
        left = numbers
        while left:
            done = 0
            for verdict in forked(self, left[:BATCH]):
                done += 1
                yield verdict
            left = left[done:]


def remove(folder: Path) -> None:
    """Remove a folder, whatever a case made of it."""
    shutil.rmtree(folder, ignore_errors=True)


def forked(job: Job, numbers: range) -> Iterator[Verdict]:
    """Run cases in a process of its own; where it dies or hangs, the last verdict says so and the others are left."""
    kind_of(job.kind)  # imported once, before the process is copied
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        work(job, numbers, writer)
    os.close(writer)
    number, rest = numbers.start, b""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], STEPS * CLOCK + 30)
            block = stream.read(1 << 16) if ready else b""
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                number += 1
                found = json.loads(line)
                yield Verdict(**{**found, "faults": tuple(found["faults"])})
            if not ready:
                os.kill(child, signal.SIGKILL)
            if not block:
                break
    _, status = os.waitpid(child, 0)
    if number < numbers.stop:
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        yield Verdict(number, "see --case", faults=(f"the process ended by {how}",))


def work(job: Job, numbers: range, writer: int) -> None:
    """Run cases in this process, a copy of its parent, write a line for each, and end."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nothing, stream)
        job.place.mkdir(exist_ok=True)
        os.chdir(job.place)
        limit = addresses() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        draw = kind_of(job.kind)
        for number in numbers:
            line = json.dumps(asdict(job.one(draw, number))) + "\n"
            os.write(writer, line.encode())
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def addresses() -> int:
    """Return the bytes of addresses that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def again(job: Job, number: int) -> int:
    """Run one case in this process and tell everything of it."""
    verdict = job.one(kind_of(job.kind), number, trace=True)
    print(f"{job.kind} seed {job.seed} case {number}: {verdict.told}\n{verdict.refused} steps refused, {verdict.sound} "
          f"sound, {verdict.seconds:.2f} s, {verdict.memory:,} bytes")
    for fault in verdict.faults:
        print(f"fault: {fault}")
    return 1 if verdict.faults else 0


def told(job: Job, verdicts: Iterator[Verdict], count: int) -> int:
    """Print faults as they come, and a summary."""
    begin, seen, bad = time.monotonic(), list[Verdict](), Counter[str]()
    for verdict in verdicts:
        seen.append(verdict)
        for fault in verdict.faults:
            bad[fault.rpartition("[")[2]] += 1
            print(f"FAULT {job.kind} seed {job.seed} case {verdict.number}: {verdict.told}\n      {fault}", flush=True)
        if len(seen) % TOLD == 0:
            print(f"{len(seen):,} of {count:,}, {sum(bad.values())} faults, {time.monotonic() - begin:.0f} s",
                  flush=True)
    refused, sound = sum(one.refused for one in seen), sum(one.sound for one in seen)
    print(f"{job.kind}: {len(seen):,} cases of seed {job.seed} in {time.monotonic() - begin:.0f} s: {refused:,} steps "
          f"refused, {sound:,} sound, {sum(bad.values())} faults; slowest {max(one.seconds for one in seen):.1f} s of "
          f"processor time; most memory {max(one.memory for one in seen) / 2**20:.0f} MiB of {ROOM // 2**20} and twice "
          "the files")
    for where, times in bad.most_common():
        print(f"{times:6} {where}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
