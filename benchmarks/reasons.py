"""Answers learned with their reasons beside them, and alone: a colour that one sentence of a stretch of a novel tells.

`python -m benchmarks reasons`. What is finished is kept in `runs/reasons`, and is not done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.cooking import needed
from benchmarks.long_keys import BOOKS, HELD_OUT_BOOK
from benchmarks.long_runs import muon
from benchmarks.long_texts import hidden_keys, sentence, write_rows
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned, named, said, scores, took

RUNS = Path("runs/reasons")
WORDS = 40
ROWS, QUICK_ROWS = (1000, 4000), (32,)
HELD_OUT, QUICK_HELD_OUT = 1000, 8
UPDATES = 600
"""Of answers alone; with reasons each has as many answers, and as many reasons beside them."""
BATCH = 32
SEEDS = (0,)


def measure(quick: bool) -> Section:
    """Learn from few rows and from more, with and without reasons."""
    seeds, sizes = (SEEDS[:1], QUICK_ROWS) if quick else (SEEDS, ROWS)
    about = (f"`saucier finetune step_by_step --model t5-nano`, from nothing (two layers of 128), {UPDATES:,} updates "
             f"of {BATCH} rows: {WORDS} words of a novel, in which one sentence says `The key is COLOUR.` and others "
             "say the same of other things. The answer is the colour of the key, the reason that sentence. Exact match "
             f"on {HELD_OUT:,} rows of another novel, in brackets the 95 % interval over rows.")
    rows = [row(size, seed, quick=quick) for size in sizes for seed in seeds]
    return Section("Answers with reasons", about, rows, [f"`{RUNS}` holds the rows, and every run with its settings."])


def row(size: int, seed: int, *, quick: bool) -> Row:
    """Learn from so many rows both ways."""
    reasoned, alone = (learned(size, seed, weight, quick=quick) for weight in (1, 0))
    with_reasons, without = (named(scores(run)["scores"], "exact match") for run in (reasoned, alone))
    what = f"{size:,} rows, seed {seed}: with reasons ({took(reasoned):.0f} s), answers alone ({took(alone):.0f} s)"
    return Row(what, said(with_reasons), said(without), target="above",
               reached=with_reasons["value"] > without["value"])


def learned(size: int, seed: int, weight: int, *, quick: bool) -> Path:
    """Learn with reasons of a weight, unless that is done."""
    epochs = 1 if quick else UPDATES * BATCH // size
    rows_of_an_answer = 2 if weight else 1
    return finetuned(RUNS / ("quick" * quick) / f"{size}-{weight}-{seed}", "step_by_step", "t5-nano",
                     files(size, seed, QUICK_HELD_OUT if quick else HELD_OUT),
                     [f"training.epochs={epochs}", f"training.batch={BATCH * rows_of_an_answer}",
                      f"training.seed={seed}", f"task.weight={weight}", "recipe.model.layers=2",
                      f"recipe.tokenizer.vocab={400 if quick else 1000}", *muon(1e-2, 1e-2)])


def files(size: int, seed: int, held_out: int) -> tuple[Path, Path]:
    """Write the rows, for each seed of its own, unless they are there."""
    found = []
    for part, books, count in (("train", BOOKS, size), ("dev", (HELD_OUT_BOOK,), held_out)):
        path = RUNS / "data" / f"{part}-{count}-{seed}.tsv"
        if not path.is_file():
            places = [needed("long", name) for name in books]
            write_rows(path, ("target", "input", "rationale"), reasoned(places, count, 2 * seed + (part == "dev")))
        found.append(path)
    return found[0], found[1]


def reasoned(books: list[Path], count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield colours, texts, and the sentences that tell the colours."""
    for colour, text in hidden_keys(books, count, WORDS, seed):
        yield colour, text, " ".join(sentence("key", colour))
