"""Letters written again, by models that read text of any kind, from nothing; a part of `long_tasks`."""

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
    """Rows of random letters, bars, and the same letters again, each with the end of its text."""

    letters: int
    """How many are to be written again."""
    bars: int
    train: int
    held_out: int

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return 2 * self.letters + self.bars + 1

    @property
    def known(self) -> float:
        """Bits per byte of one who copies without fault: the first letters cannot be known, the others are certain."""
        return log2(len(ascii_lowercase)) * self.letters / (self.length - 1)

    @property
    def unknown(self) -> float:
        """Bits per byte of one who does not see the first letters: every one is a guess."""
        return 2 * self.known


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, its rows, and what takes from the same model what it would have to remember."""

    name: str
    recipe: str
    copies: Copies
    steps: int
    words: tuple[str, ...]
    short: tuple[str, ...]


BYTES = "tokenizer={kind: bytes}"
CASES = (
    # three bars: the letter that comes next stands a whole number of the pattern's rows back
    Case("Sparse Transformer", "sparse-transformer-nano", Copies(2046, 3, train=400, held_out=8), 400,
         ("training.batch=2",), ("model.length=1024", "training.length=1024", "training.batch=8")),
    Case("Transformer-XL", "transformer-xl-nano", Copies(96, 1, train=3000, held_out=40), 500,
         ("model.cutoffs=[200]",), ("model.memory=null", "objective.rows={kind: shuffled}")),
    Case("Reformer", "reformer-nano", Copies(127, 1, train=4000, held_out=40), 800,
         ("training.batch=16",), ("training.length=64", "training.batch=64")),
    Case("sixty-four layers made twelve", "deep-char-nano", Copies(127, 1, train=4000, held_out=40), 500,
         (), ("model.length=64", "training.length=64", "training.batch=32")),
)
QUICK = Copies(62, 3, train=40, held_out=4)
ABOUT = ("Copies: rows of drawn letters, a bar, and the same letters again, learned as text. Told is the share of what "
         "copying saves that a model saves, in brackets its bits per byte and those of one who copies without fault; "
         "beside it, the same model where it cannot see the first letters.")


def rows(*, quick: bool) -> list[Row]:
    """Learn every case with every seed, and once where the first letters are not seen."""
    found = []
    for case in CASES[:1] if quick else CASES:
        blind = copied(case, "short", 0, case.short, quick=quick)
        found += [row(case, seed, blind, quick=quick) for seed in SEEDS[:1 if quick else None]]
    return found


def row(case: Case, seed: int, blind: tuple[float, float, float], *, quick: bool) -> Row:
    """Return the line of one seed."""
    copies = QUICK if quick else case.copies
    share, bits, seconds = copied(case, "whole", seed, (), quick=quick)
    what = f"a copy of {copies.letters:,} letters, {case.name}, seed {seed}, {case.steps} updates, {seconds:.0f} s"
    return Row(what, f"{share:.3f} ({bits:.3f}; {copies.known:.3f})", f"{blind[0]:.3f} ({blind[1]:.3f})",
               target="above", reached=share > blind[0])


def copied(case: Case, name: str, seed: int, words: tuple[str, ...], *, quick: bool) -> tuple[float, float, float]:
    """Cook the recipe, unless that is done, and return the share that it saves, its bits per byte, and its seconds."""
    copies = QUICK if quick else case.copies
    steps = 6 if quick else case.steps
    run = RUNS / ("quick" * quick) / f"copies-{case.recipe}-{name}-{seed}"
    train, held_out = (written(copies, part, seed) for part in ("train", "held_out"))
    found = kept(case.recipe, run, [
        "--data", str(train), "--held-out", str(held_out), "data.document=line", BYTES, f"training.steps={steps}",
        f"training.evaluate_every={steps}", f"training.seed={seed}", "sampling.samples=0", "evaluation.baselines=[]",
        *case.words, *words, *(["--no-calibrate"] if quick else [])])
    bits = found["held_out"]["bits_per_byte"]
    return (copies.unknown - bits) / (copies.unknown - copies.known), bits, found["cost"]["phases"]["train"]


def written(copies: Copies, part: str, seed: int) -> Path:
    """Write the rows of one part, for each seed of its own, unless they are there."""
    count = getattr(copies, part)
    path = RUNS / "data" / f"copies-{part}-{copies.letters}-{copies.bars}-{count}-{seed}.txt"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts(copies, count, 2 * seed + (part == "held_out"))) + "\n", encoding="utf-8")
    return path


def texts(copies: Copies, count: int, seed: int) -> Iterator[str]:
    """Yield texts that are told twice."""
    draw = random.Random(seed)
    for _ in range(count):
        letters = "".join(draw.choices(ascii_lowercase, k=copies.letters))
        yield f"{letters}{'|' * copies.bars}{letters}"
