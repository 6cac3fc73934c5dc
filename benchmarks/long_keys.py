"""The colour of a key in 8,192 tokens of a novel, learned from nothing at growing lengths; a part of `long_tasks`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cooking import SHARED
from benchmarks.long_runs import RUNS, muon
from benchmarks.long_texts import COLOURS, hidden_keys, write_rows
from benchmarks.section import Row
from benchmarks.tuned import accuracy, finetuned, named, said, scores, took

BOOKS = ("middlemarch.txt", "moby_dick.txt", "pride_and_prejudice.txt")
HELD_OUT_BOOK = "sherlock_holmes.txt"
LABELS = f"task.labels=[{','.join(sorted(COLOURS))}]"
"""All of them: few long rows may lack a colour that others ask for."""
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
                f"training.seed={seed}", LABELS, *muon(self.rate, 0.4 * self.rate)]


FIRST = Stage("short", words=40, rows=16000, batch=64, length=72, rate=1e-2)
MIDDLE = Stage("middle", words=700, rows=240, batch=8, length=1024)
LAST = Stage("long", words=5600, rows=24, batch=4, length=LENGTH, held_out=60)
QUICK = (Stage("short", words=24, rows=320, batch=64, length=72, rate=1e-2),
         Stage("middle", words=60, rows=8, batch=4, length=128), Stage("long", words=90, rows=8, batch=4, length=256))
ABOUT = (f"One sentence of some {LAST.words:,} words of a novel ({LENGTH:,} tokens) says `The key is COLOUR.`, at any "
         "place; some sixteen say the same of other things. The colour of the key is to be told. Learned on rows of "
         f"{FIRST.words}, then of {MIDDLE.words}, then of {LAST.words:,} words, another novel held out.")


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, and what is otherwise about it."""

    name: str
    recipe: str
    words: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    times: int = 1
    """How many times the rows of each stage it learns from."""
    table: bool = True
    """Whether it has a table of positions, which is tiled before long rows are learned from."""


SMALL = ("recipe.model.dim=64", "recipe.model.layers=2", "recipe.tokenizer.vocab=1000")
START = f"recipe.model.length={FIRST.length + 2}"
BLOCKS = ("{kind: plus, terms: [{kind: or, terms: [{kind: block_window, size: 8}, {kind: global_blocks, size: 8}]}, "
          f"{{kind: random_blocks, size: 8, count: 3, length: {LENGTH}}}]}}")
CASES = (
    Case("Longformer, windows of 16 and a global first token", "longformer-nano",
         (*SMALL, "recipe.model.window=[16,16]", START), seeds=(0, 1)),
    Case("BigBird, blocks of 8", "bigbird-nano", (*SMALL, START, f"recipe.model.visibility={BLOCKS}"), times=3),
    Case("ETC, three layers, radius 8, 32 global tokens", "etc-nano",
         (*SMALL, "recipe.model.layers=3", "recipe.model.radius=8"), times=2, table=False),
    Case("Linformer, 32 mixtures of keys", "linformer-nano",
         (*SMALL, START, f"recipe.model.kernel.length={FIRST.length + 1}")),
    Case("Performer, causal", "performer-nano", (*SMALL, START)),
)


def missing() -> list[str]:
    """Name the books that this machine has not."""
    return [name for name in (*BOOKS, HELD_OUT_BOOK) if not (SHARED / "long" / name).is_file()]


def rows(*, quick: bool) -> list[Row]:
    """Learn every case with every seed."""
    return [row for case in CASES for seed in case.seeds[:1 if quick else None]
            for row in key_rows(case, seed, quick=quick)]


def key_rows(case: Case, seed: int, *, quick: bool) -> list[Row]:
    """Learn one case and return its line, and that of the same model which reads the first tokens alone."""
    first, middle, last = QUICK if quick else (replace(one, rows=case.times * one.rows)
                                               for one in (FIRST, MIDDLE, LAST))
    folder = RUNS / ("quick" * quick) / f"{case.recipe}-{seed}"
    begun = learned(folder / first.name, case.recipe, first, seed, case.words)
    wide = lengthened(begun, folder / "positions", last.length) if case.table else begun
    further = learned(folder / middle.name, str(wide), middle, seed)
    long = learned(folder / last.name, str(further), last, seed)
    short = learned(folder / "cut", str(further), last, seed, [f"training.length={min(SHORT, last.length // 4)}"])
    chance = f"a guess {1 / len(COLOURS):.3f}"
    seconds = sum(took(one) for one in (begun, further, long))
    name = f"{case.name}, {case.times} times the rows" if case.times > 1 else case.name
    return [Row(f"the key, {name}: accuracy, seed {seed}, {seconds:.0f} s", said(accuracy(long)),
                f"{simple(long)}, {chance}"),
            Row(f"the same, the first {SHORT} tokens alone, seed {seed}", said(accuracy(short)), chance)]


def learned(folder: Path, model: str, stage: Stage, seed: int, words: Iterable[str] = ()) -> Path:
    """Learn one stage."""
    return finetuned(folder, "classification", model, files(stage, seed), [*stage.learning(seed), *words])


def files(stage: Stage, seed: int) -> tuple[Path, Path]:
    """Write the rows of a stage, for each seed of its own, unless they are there."""
    found = []
    for part, books, count in (("train", BOOKS, stage.rows), ("dev", (HELD_OUT_BOOK,), stage.held_out)):
        path = RUNS / "data" / f"{part}-{stage.words}-{count}-{seed}.tsv"
        if not path.is_file():
            places = [SHARED / "long" / name for name in books]
            write_rows(path, ("label", "text"), hidden_keys(places, count, stage.words, 2 * seed + (part == "dev")))
        found.append(path)
    return found[0], found[1]


def lengthened(run: Path, folder: Path, length: int) -> Path:
    """Tile the table of positions: `saucier convert RUN FOLDER --positions LENGTH`."""
    from saucier.adaptation.surgery.asked import Asked
    from saucier.runs.convert import convert

    if not folder.is_dir():
        convert(str(run), folder, asked=Asked(positions=length))
    return folder


def simple(run: Path) -> str:
    """Tell the best simple method, which learned from the same long rows."""
    best = max((named(one, "accuracy")["value"], name) for name, one in scores(run)["baselines"].items())
    return f"{best[1]} {best[0]:.3f}"
