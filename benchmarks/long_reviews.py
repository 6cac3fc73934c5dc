"""Reviews of films of some 750 words, learned from nothing; a part of `long_tasks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cooking import SHARED
from benchmarks.long_runs import RUNS, muon
from benchmarks.section import Row
from benchmarks.tuned import accuracy, finetuned, named, said, scores, took

FOLDER = SHARED / "classification" / "movie_reviews_long"
FILES = (FOLDER / "train.jsonl", FOLDER / "dev.jsonl")
EPOCHS, BATCH, LENGTH, SHORT = 10, 16, 1024, 64
"""Tokens that are read of a row, and those that short context reads."""
ABOUT = ("Reviews of films, good or bad: 700 to learn from and 200 held out, some 750 words each; beside it, the best "
         "simple method, which counts all words.")


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, and what its tables have for rows of a length."""

    name: str
    recipe: str
    tables: Callable[[int], tuple[str, ...]]


CASES = (
    Case("Linformer, two layers of 64, 32 mixtures of keys", "linformer-nano",
         lambda length: (f"recipe.model.length={length + 2}", f"recipe.model.kernel.length={length + 1}")),
    Case("Performer, causal, two layers of 64", "performer-nano",
         lambda length: (f"recipe.model.length={length + 2}",)),
)


def rows(*, quick: bool) -> list[Row]:
    """Learn every case, and once from the first tokens alone."""
    found = []
    for case in CASES:
        long, short = (learned(case, length, quick=quick) for length in (LENGTH, SHORT))
        simple = max((named(one, "accuracy")["value"], name) for name, one in scores(long)["baselines"].items())
        found.append(Row(f"reviews, {case.name}: accuracy, seed 0, {took(long):.0f} s", said(accuracy(long)),
                         f"{simple[1]} {simple[0]:.3f}"))
        found.append(Row(f"the same, the first {SHORT} tokens alone", said(accuracy(short))))
    return found


def learned(case: Case, length: int, *, quick: bool) -> Path:
    """Learn from so many tokens of a row."""
    words = ("training.epochs=1", "data.limit=32") if quick else (f"training.epochs={EPOCHS}",)
    return finetuned(RUNS / ("quick" * quick) / f"reviews-{case.recipe}-{length}", "classification", case.recipe, FILES,
                     ["task.text=text", f"training.length={length}", f"training.batch={BATCH}", *muon(3e-3, 1.2e-3),
                      "recipe.model.dim=64", "recipe.model.layers=2", "recipe.tokenizer.vocab=4000",
                      *case.tables(length), *words])
