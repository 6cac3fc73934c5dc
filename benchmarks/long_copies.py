"""Letters written again after 2,048 others, by a Sparse Transformer from nothing; a part of `long_tasks`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from pathlib import Path
from string import ascii_lowercase

from benchmarks.cooking import kept
from benchmarks.long_runs import RUNS
from benchmarks.section import Row

SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class Copies:
    """Rows of random letters, a bar, and the same letters again; with the end of the text, `length` bytes."""

    length: int
    train: int
    held_out: int
    steps: int

    @property
    def letters(self) -> int:
        """How many are to be written again."""
        return self.length // 2 - 1

    @property
    def known(self) -> float:
        """Bits per byte of one who copies without fault: the first half cannot be known, the second is certain."""
        return log2(len(ascii_lowercase)) * self.letters / (2 * self.letters + 1)

    @property
    def unknown(self) -> float:
        """Bits per byte of one who sees less than half a row: every letter is a guess."""
        return 2 * self.known


FULL = Copies(length=4096, train=300, held_out=8, steps=300)
QUICK = Copies(length=256, train=40, held_out=4, steps=6)
ABOUT = (f"Rows of {FULL.length:,} bytes: {FULL.letters:,} drawn letters, a bar, and the same letters again, learned "
         f"as text (bits per byte; {FULL.known:.3f} where everything is copied, {FULL.unknown:.3f} where nothing is).")


def rows(*, quick: bool) -> list[Row]:
    """Learn with every seed, and once where a row of a quarter of the length is all that is seen."""
    copies = QUICK if quick else FULL
    found = [copied(copies, seed, copies.length, quick=quick) for seed in SEEDS[:1 if quick else None]]
    return [*found, copied(copies, 0, copies.length // 4, quick=quick)]


def copied(copies: Copies, seed: int, length: int, *, quick: bool) -> Row:
    """Cook the recipe on rows of some length, unless that is done, and return its line."""
    run = RUNS / ("quick" * quick) / f"copies-{length}-{seed}"
    train, held_out = (written(copies, part, seed) for part in ("train", "held_out"))
    found = kept("sparse-transformer-nano", run, [
        "--data", str(train), "--held-out", str(held_out), "data.document=line", f"model.length={length}",
        f"training.length={length}", f"training.batch={2 * (copies.length // length)}",
        f"training.steps={copies.steps}", f"training.evaluate_every={copies.steps}", f"training.seed={seed}",
        "sampling.samples=0", "evaluation.baselines=[]", *(["--no-calibrate"] if quick else [])])
    own, seconds = found["held_out"]["bits_per_byte"], found["cost"]["phases"]["train"]
    share = (copies.unknown - own) / (copies.unknown - copies.known)
    what = f"Sparse Transformer, {length:,} bytes at once: share of what copying saves, seed {seed}, {seconds:.0f} s"
    return Row(what, f"{share:.3f} ({own:.3f} bits per byte)", f"{copies.unknown:.3f}")


def written(copies: Copies, part: str, seed: int) -> Path:
    """Write the rows of one part, for each seed of its own, unless they are there."""
    count = getattr(copies, part)
    path = RUNS / "data" / f"copies-{part}-{copies.length}-{count}-{seed}.txt"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts(copies, count, 2 * seed + (part == "held_out"))) + "\n", encoding="utf-8")
    return path


def texts(copies: Copies, count: int, seed: int) -> Iterator[str]:
    """Yield texts that are told twice."""
    draw = random.Random(seed)
    for _ in range(count):
        letters = "".join(draw.choices(ascii_lowercase, k=copies.letters))
        yield f"{letters}|{letters}"
