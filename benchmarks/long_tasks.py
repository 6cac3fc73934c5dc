"""Tasks that short context cannot solve, learned from nothing: the colour of a key in 8,192 tokens of a novel.

`python -m benchmarks long_tasks`. What is finished is kept in `runs/long_tasks`, and is not done again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cooking import SHARED
from benchmarks.long_texts import COLOURS, hidden_keys, write_rows
from benchmarks.section import Row, Section

RUNS = Path("runs/long_tasks")
BOOKS = ("middlemarch.txt", "moby_dick.txt", "pride_and_prejudice.txt")
HELD_OUT_BOOK = "sherlock_holmes.txt"
SEEDS = (0, 1)
LENGTH, SHORT = 8192, 512
"""Tokens that are read of a row, and those that short context reads."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows of one length, and how long they are learned from."""

    name: str
    words: int
    rows: int
    batch: int
    length: int
    """Tokens."""
    held_out: int = 20
    rate: float = 3e-3
    """Of the matrices; all else has four tenths."""

    def learning(self, seed: int) -> list[str]:
        """Return the words of the command line; every row is seen once."""
        return [f"training.length={self.length}", f"training.batch={self.batch}", "training.epochs=1",
                f"training.seed={seed}", "training.optimizer.kind=muon", "training.optimizer.weight_decay=0",
                f"training.optimizer.learning_rate={self.rate:g}", "training.optimizer.others.weight_decay=0",
                f"training.optimizer.others.learning_rate={0.4 * self.rate:g}"]


FIRST = Stage("short", words=30, rows=16000, batch=64, length=128, rate=1e-2)
MIDDLE = Stage("middle", words=700, rows=400, batch=8, length=1024)
LAST = Stage("long", words=5600, rows=64, batch=4, length=LENGTH, held_out=100)
QUICK = (Stage("short", words=24, rows=320, batch=64, length=64, rate=1e-2),
         Stage("middle", words=60, rows=8, batch=4, length=128), Stage("long", words=90, rows=8, batch=4, length=256))


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, and what is otherwise about it."""

    name: str
    recipe: str
    words: tuple[str, ...]


SMALL = ("recipe.model.dim=64", "recipe.model.layers=2", "recipe.tokenizer.vocab=1000")
CASES = (Case("Longformer, windows of 16 and a global first token", "longformer-nano",
              (*SMALL, "recipe.model.window=[16,16]", "recipe.model.length=130")),)


def measure(quick: bool) -> Section:
    """Learn each case at growing lengths, and read with short context beside it."""
    about = (f"One sentence of some {LAST.words:,} words of a novel ({LENGTH:,} tokens) says `The key is COLOUR.`, at "
             "any place; some sixteen say the same of other things. The colour of the key is to be told. From random "
             f"weights, on rows of {FIRST.words}, then of {MIDDLE.words}, then of {LAST.words:,} words, another novel "
             "held out. In brackets the 95 % interval over rows.")
    if missing := [name for name in (*BOOKS, HELD_OUT_BOOK) if not (SHARED / "long" / name).is_file()]:
        return Section("Long tasks", about, [], [f"Not measured: {', '.join(missing)} not beside the repository."])
    rows = [row for case in CASES for seed in SEEDS[:1 if quick else None] for row in key_rows(case, seed, quick)]
    return Section("Long tasks", about, rows, [f"`{RUNS}` holds the rows, and every run with its settings."])


def key_rows(case: Case, seed: int, quick: bool) -> list[Row]:
    """Learn one case and return its line, and that of the same model which reads the first tokens alone."""
    first, middle, last = QUICK if quick else (FIRST, MIDDLE, LAST)
    folder = RUNS / ("quick" * quick) / f"{case.recipe}-{seed}"
    begun = finetuned(folder / first.name, case.recipe, first, seed, case.words)
    wide = folder / "positions"
    lengthened(begun, wide, last.length)
    further = finetuned(folder / middle.name, str(wide), middle, seed)
    long = finetuned(folder / last.name, str(further), last, seed)
    short = finetuned(folder / "cut", str(further), last, seed, [f"training.length={min(SHORT, last.length // 4)}"])
    chance = f"a guess {1 / len(COLOURS):.3f}"
    seconds = sum(took(one) for one in (begun, further, long))
    return [Row(f"{case.name}: accuracy, seed {seed}, {seconds:.0f} s", said(long), f"{simple(long)}, {chance}"),
            Row(f"the same, the first {SHORT} tokens alone, seed {seed}", said(short), chance)]


def finetuned(folder: Path, model: str, stage: Stage, seed: int, words: Any = ()) -> Path:
    """Learn one stage, unless that is done, and return its folder."""
    from saucier.finetuning.asked import Files, wanted_finetuning
    from saucier.finetuning.job import finetune

    train, held_out = (str(path) for path in rows_of(stage, seed))
    settings, _ = wanted_finetuning("classification", [*stage.learning(seed), *words], model,
                                    Files((train,), (held_out,)))
    finetune(settings, folder)
    return folder


def rows_of(stage: Stage, seed: int) -> list[Path]:
    """Write the rows of a stage, for each seed of its own, unless they are there."""
    found = []
    for part, books, rows in (("train", BOOKS, stage.rows), ("dev", (HELD_OUT_BOOK,), stage.held_out)):
        path = RUNS / "data" / f"{part}-{stage.words}-{rows}-{seed}.tsv"
        if not path.is_file():
            places = [SHARED / "long" / name for name in books]
            write_rows(path, hidden_keys(places, rows, stage.words, 2 * seed + (part == "dev")))
        found.append(path)
    return found


def lengthened(run: Path, folder: Path, length: int) -> None:
    """Tile the table of positions: `saucier convert RUN FOLDER --positions LENGTH`."""
    from saucier.adaptation.surgery.asked import Asked
    from saucier.runs.convert import convert

    if not folder.is_dir():
        convert(str(run), folder, asked=Asked(positions=length))


def scores(run: Path) -> dict[str, Any]:
    """Return what was measured on the held-out rows."""
    found: dict[str, Any] = json.loads((run / "scores.json").read_text(encoding="utf-8"))["held-out"]
    return found


def accuracy(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one score."""
    return next(one for one in found if one["name"] == "accuracy")


def said(run: Path) -> str:
    """Tell the accuracy with its interval."""
    own = accuracy(scores(run)["scores"])
    return f"{own['value']:.3f} ({own['low']:.3f}–{own['high']:.3f})"


def simple(run: Path) -> str:
    """Tell the best simple method."""
    best = max(((accuracy(one)["value"], name) for name, one in scores(run)["baselines"].items()))
    return f"{best[1]} {best[0]:.3f}"


def took(run: Path) -> float:
    """Return the seconds of all stages of a run."""
    passport = json.loads((run / "passport.json").read_text(encoding="utf-8"))
    return float(sum(passport["seconds"].values()))
