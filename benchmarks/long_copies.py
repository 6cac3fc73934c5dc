"""Letters written again, by models that read text of any kind, from nothing; a part of `long_tasks`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log2
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cooking import kept
from benchmarks.long_runs import RUNS, converted, muon
from benchmarks.section import Row
from saucier.adaptation.surgery.operations import OperationOptions

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
class Stage:
    """Rows of one length, and how long they are learned."""

    copies: Copies
    steps: int
    words: tuple[str, ...] = ()
    attention: str | None = None
    """What tokens see from here on, in the words of `saucier convert --attention`."""

    @property
    def length(self) -> str:
        """The word of the command line by which a whole row is read at once."""
        return f"training.length={self.copies.length}"


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, its rows, and what takes from the same model what it would have to remember."""

    name: str
    recipe: str
    last: Stage
    """What is measured."""
    words: tuple[str, ...]
    short: tuple[str, ...]
    """What the last stage of a model has that cannot see the first letters."""
    before: tuple[Stage, ...] = ()
    """Shorter rows, which are learned first."""


BYTES, WHOLE = "tokenizer={kind: bytes}", "objective.rows={kind: documents}"
# three bars: the letter that comes next stands a whole number of the pattern's rows back
SPARSE = (Stage(Copies(62, 3, train=8000, held_out=64), 150, ("training.batch=64",)),
          Stage(Copies(254, 3, train=2000, held_out=32), 150, ("training.batch=16",)),
          Stage(Copies(1022, 3, train=600, held_out=16), 300, ("training.batch=4",)))
# bars between few letters: the distance is that of many letters, and there is less to choose from at first. All in one
# chunk is attention to all, as the paper learned its copies (§4, table 2); as many columns as the grid has lie between
HASHES = tuple(Stage(Copies(letters, bars, train=rows, held_out=40), steps,
                     (f"training.batch={batch}", "model.lsh.chunks.length=256"))
               for letters, bars, rows, batch, steps in (
                   (30, 99, 6000, 24, 120), (62, 67, 5000, 20, 80), (126, 3, 4000, 16, 100)))
CASES = (
    Case("Sparse Transformer", "sparse-transformer-nano", Stage(Copies(2046, 3, train=400, held_out=8), 400),
         ("training.batch=2", WHOLE), ("training.length=1024", "training.batch=8"), before=SPARSE),
    Case("Transformer-XL", "transformer-xl-nano", Stage(Copies(96, 1, train=3000, held_out=40), 500),
         ("model.cutoffs=[200]", BYTES), ("model.memory=null", "objective.rows={kind: shuffled}")),
    Case("Reformer, chunks of 32 by four hashes", "reformer-nano",
         Stage(Copies(126, 3, train=4000, held_out=40), 60,
               ("training.batch=16", "model.lsh.chunks.length=32", "model.lsh.rounds=4"), attention="hashes:32:4"),
         (BYTES, WHOLE, "model.positions.shape=[2,128]", *muon(1e-2, 4e-3)),
         ("training.length=64", "training.batch=64"), before=HASHES),
)
ROUNDS = (1, 2, 4, 8)
QUICK = Copies(62, 3, train=40, held_out=4)
ABOUT = ("Copies: rows of drawn letters, bars, and the same letters again, learned as text. Told is the share of what "
         "copying saves that a model saves, in brackets its bits per byte and those of one who copies without fault; "
         "beside it, the same model where it cannot see the first letters.")


def rows(*, quick: bool) -> list[Row]:
    """Learn every case with every seed, and once where the first letters are not seen."""
    found = []
    for case in CASES[:1] if quick else CASES:
        blind = copied(case, "short", 0, case.short, quick=quick)
        found += [row(case, seed, blind, quick=quick) for seed in SEEDS[:1 if quick else None]]
        if case.last.attention and not quick:
            found += by_rounds(case)
    return found


def by_rounds(case: Case) -> Iterator[Row]:
    """Tell what a model that learned in one chunk loses where it is read by hashes, as table 2 of the paper does."""
    from saucier.jobs.convert import convert

    assert case.last.attention is not None, "the caller looked"
    run, chunks = place(case, f"stage{len(case.before) - 1}", 0), case.last.attention.rpartition(":")[0]
    text = str(written(case.last.copies, "held_out", 0))
    for rounds in ROUNDS:
        with TemporaryDirectory() as folder:
            done = convert(str(run), Path(folder) / "read", options=OperationOptions(attention=f"{chunks}:{rounds}"),
                           texts=(text,))
        assert done.equivalence is not None and done.equivalence.loss is not None
        before, after = done.equivalence.loss
        yield Row(f"learned in one chunk, read by {rounds} round{'s' * (rounds > 1)} of hashes: nats a byte",
                  f"{after:.3f}", f"in one chunk {before:.3f}")


def row(case: Case, seed: int, blind: tuple[float, float, float], *, quick: bool) -> Row:
    """Return the line of one seed."""
    copies = QUICK if quick else case.last.copies
    share, bits, seconds = copied(case, "whole", seed, (), quick=quick)
    shorter = f" after {sum(one.steps for one in case.before)} on shorter rows" if case.before else ""
    what = (f"a copy of {copies.letters:,} letters, {case.name}, seed {seed}, {case.last.steps} updates{shorter}, "
            f"{seconds:.0f} s")
    return Row(what, f"{share:.3f} ({bits:.3f}; {copies.known:.3f})", f"{blind[0]:.3f} ({blind[1]:.3f})",
               target="above", reached=share > blind[0])


def copied(case: Case, name: str, seed: int, words: tuple[str, ...], *, quick: bool) -> tuple[float, float, float]:
    """Cook all stages, unless that is done; return the share that the last saves, its bits per byte, all seconds."""
    begun: list[str] = []
    seconds = 0.0
    for number, stage in enumerate(() if quick else case.before):
        run = place(case, f"stage{number}", seed)
        found = learned(case, stage, run, seed, (*begun, *case.words, *stage.words, stage.length))
        begun, seconds = ["--from", str(run)], seconds + found["cost"]["phases"]["train"]
    if begun and case.last.attention:
        begun = ["--from", str(converted(run, run / "converted", OperationOptions(attention=case.last.attention)))]
    last = replace(case.last, copies=QUICK, steps=6) if quick else case.last
    rest = (*begun, *case.words, *last.words, *words, *(["--no-calibrate"] if quick else []))
    found = learned(case, last, place(case, name, seed, quick=quick), seed, rest)
    bits, copies = found["held_out"]["bits_per_byte"], last.copies
    share = (copies.unknown - bits) / (copies.unknown - copies.known)
    return share, bits, seconds + found["cost"]["phases"]["train"]


def place(case: Case, name: str, seed: int, *, quick: bool = False) -> Path:
    """Return the folder of a run."""
    return RUNS / ("quick" * quick) / f"copies-{case.recipe}-{name}-{seed}"


def learned(case: Case, stage: Stage, run: Path, seed: int, words: tuple[str, ...]) -> dict[str, Any]:
    """Cook one stage, unless that is done, and return its results."""
    train, held_out = (written(stage.copies, part, seed) for part in ("train", "held_out"))
    return kept(case.recipe, run, [
        "--data", str(train), "--held-out", str(held_out), "data.document=line", f"training.steps={stage.steps}",
        f"training.evaluate_every={stage.steps}", f"training.seed={seed}", "sampling.samples=0",
        "evaluation.baselines=[]", *words])


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
