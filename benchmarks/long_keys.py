"""The colour of a key in 8,192 tokens of a novel, learned from nothing at growing lengths; a part of `long_tasks`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cooking import SHARED
from benchmarks.long_runs import RUNS, converted, muon
from benchmarks.long_texts import COLOURS, hidden_keys, write_rows
from benchmarks.section import Row
from benchmarks.tuned import finetuned, named, said, scores, took
from saucier.adaptation.surgery.operations import OperationOptions

BOOKS = tuple(SHARED / "long" / name for name in ("middlemarch.txt", "moby_dick.txt", "pride_and_prejudice.txt"))
HELD_OUT_BOOK = SHARED / "long" / "sherlock_holmes.txt"
LABELS = f"task.labels=[{','.join(sorted(COLOURS))}]"
"""All of them: few long rows may lack a colour that others ask for."""
LED_TARGETS = 2048
"""Positions that LED's targets have from the start: no table is made shorter."""
LENGTH, SHORT = 8192, 512
"""Tokens that are read of a long row, and those that short context reads."""


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
                f"training.seed={seed}", *muon(self.rate, 0.4 * self.rate)]


SHORTEST = Stage("shortest", words=12, rows=16000, batch=64, length=32, rate=1e-2)
FIRST = Stage("short", words=40, rows=16000, batch=64, length=72, rate=1e-2)
MIDDLE = Stage("middle", words=700, rows=240, batch=8, length=1024)
LAST = Stage("long", words=5600, rows=24, batch=4, length=LENGTH, held_out=60)
QUICK = (Stage("short", words=24, rows=320, batch=64, length=72, rate=1e-2),
         Stage("middle", words=60, rows=8, batch=4, length=128), Stage("long", words=90, rows=8, batch=4, length=256))
ABOUT = (f"One sentence of some {LAST.words:,} words of a novel ({LENGTH:,} tokens) says `The key is COLOUR.`, at any "
         "place; some sixteen say the same of other things. The colour of the key is to be told. Learned on rows of "
         f"{FIRST.words}, then of {MIDDLE.words}, then of {LAST.words:,} words, another novel held out.")


@dataclass(frozen=True, slots=True)
class Task:
    """How the colour is asked for."""

    kind: str
    words: tuple[str, ...]
    score: str
    """What tells how often the answer is right."""


CHOOSE = Task("classification", (LABELS,), "accuracy")
WRITE = Task("text_to_text", ("task.input=text", "task.target=label"), "exact match")


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, and what is otherwise about it."""

    name: str
    recipe: str
    words: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1)
    times: int = 1
    """How many times the rows of each stage it learns from."""
    table: bool = True
    """Whether it has a table of positions, which is tiled before long rows are learned from."""
    task: Task = CHOOSE
    stages: tuple[Stage, ...] = (FIRST, MIDDLE, LAST)
    """Rows that grow; those of the last are told."""
    short: int = SHORT
    """Tokens that the same model reads where it cannot see all."""


SMALL = ("recipe.model.dim=64", "recipe.model.layers=2", "recipe.tokenizer.vocab=1000")
START = f"recipe.model.length={FIRST.length + 2}"
BLOCKS = ("{kind: plus, terms: [{kind: or, terms: [{kind: block_window, size: 8}, {kind: global_blocks, size: 8}]}, "
          f"{{kind: random_blocks, size: 8, count: 3, length: {LENGTH}}}]}}")
CASES = (
    Case("Longformer, windows of 16 and a global first token", "longformer-nano",
         (*SMALL, "recipe.model.window=[16,16]", START)),
    Case("BigBird, blocks of 8", "bigbird-nano", (*SMALL, START, f"recipe.model.visibility={BLOCKS}"), times=3),
    Case("ETC, three layers, radius 8, 32 global tokens", "etc-nano",
         (*SMALL, "recipe.model.layers=3", "recipe.model.radius=8"), times=2, table=False),
    Case("LED, windows of 16, writes the colour, after rows of 12 words", "led-nano",
         (*SMALL, "recipe.model.window=16", START), task=WRITE, stages=(SHORTEST, FIRST, MIDDLE, LAST)),
    Case("Linformer, 32 mixtures of keys", "linformer-nano",
         (*SMALL, START, f"recipe.model.kernel.length={FIRST.length + 1}"), seeds=(0,), times=4),
    Case("Performer, causal", "performer-nano", (*SMALL, START), seeds=(0,), times=4),
    Case(f"twelve layers of bytes, rows of {SHORTEST.words} words", "deep-char-nano", ("recipe.model.dim=64",),
         seeds=(0,), table=False, stages=(replace(SHORTEST, length=100, held_out=60),), short=24),
)


def rows(*, quick: bool) -> list[Row]:
    """Learn every case with every seed."""
    return [row for case in CASES[::3 if quick else 1] for seed in case.seeds[:1 if quick else None]
            for row in key_rows(case, seed, quick=quick)]


def key_rows(case: Case, seed: int, *, quick: bool) -> list[Row]:
    """Learn one case and return its line, and that of the same model which reads the first tokens alone."""
    *before, last = QUICK if quick else (replace(one, rows=case.times * one.rows) for one in case.stages)
    folder = RUNS / ("quick" * quick) / f"{case.recipe}-{seed}"
    runs, begun, words = [], case.recipe, case.words
    for stage in before:
        runs.append(learned(folder / stage.name, begun, stage, seed, case.task, words))
        begun, words = str(runs[-1]), ()
        if case.table and stage.name == FIRST.name:
            begun = str(converted(runs[-1], folder / "positions",
                                  OperationOptions(positions=max(last.length, LED_TARGETS))))
    long = learned(folder / last.name, begun, last, seed, case.task, words)
    cut = min(case.short, last.length // 4)
    short = learned(folder / "cut", begun, last, seed, case.task, (*words, f"training.length={cut}"))
    chance = f"a guess {1 / len(COLOURS):.3f}"
    seconds = sum(took(one) for one in (*runs, long))
    name = f"{case.name}, {case.times} times the rows" if case.times > 1 else case.name
    return [Row(f"the key, {name}: {case.task.score}, seed {seed}, {seconds:.0f} s", said(right(long, case.task)),
                f"{simple(long, case.task)}, {chance}"),
            Row(f"the same, the first {cut} tokens alone, seed {seed}", said(right(short, case.task)), chance)]


def learned(folder: Path, model: str, stage: Stage, seed: int, task: Task, words: Iterable[str] = ()) -> Path:
    """Learn one stage."""
    return finetuned(folder, task.kind, model, files(stage, seed), [*stage.learning(seed), *task.words, *words])


def right(run: Path, task: Task) -> dict[str, Any]:
    """Return the share of right answers."""
    return named(scores(run)["scores"], task.score)


def files(stage: Stage, seed: int) -> tuple[Path, Path]:
    """Write the rows of a stage, for each seed of its own, unless they are there."""
    found = []
    for part, books, count in (("train", BOOKS, stage.rows), ("dev", (HELD_OUT_BOOK,), stage.held_out)):
        path = RUNS / "data" / f"{part}-{stage.words}-{count}-{seed}.tsv"
        if not path.is_file():
            write_rows(path, ("label", "text"), hidden_keys(books, count, stage.words, 2 * seed + (part == "dev")))
        found.append(path)
    return found[0], found[1]


def simple(run: Path, task: Task) -> str:
    """Tell the best simple method, which learned from the same long rows."""
    best = max((named(one, task.score)["value"], name) for name, one in scores(run)["baselines"].items())
    return f"{best[1]} {best[0]:.3f}"
