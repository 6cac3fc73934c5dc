"""Titles of sections, written from their first words, by a model that begins with nothing: summaries in few words.

Only titles that several training sections have: names of persons and places stand in one article alone.

`python -m benchmarks titles`. What is finished is kept in `runs/titles`, and is not done again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cooking import needed
from benchmarks.long_runs import muon
from benchmarks.long_texts import write_rows
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned, named, said, scores, took

RUNS = Path("runs/titles")
HEADING = re.compile(r" (?:= )+(?P<title>.+?)(?: =)+ ?")
"""A line of WikiText-2 such as ` = = Early life = = `."""
WORDS, FEWEST = 100, 20
"""Words of a section that are read, and those of the shortest section."""
UNKNOWN = "<unk>"
"""What stands in WikiText-2 for rare words: such titles are left out."""
SECTIONS = 5
"""Training sections that a title must have."""
EPOCHS = 12
SEEDS = (0,)


def measure(quick: bool) -> Section:
    """Learn from WikiText-2's training articles, and write the titles of its test articles' sections."""
    about = (f"`saucier finetune summarization --model t5-nano`, from nothing (two layers of 128), {EPOCHS} epochs: "
             f"the title of a section of WikiText-2 from its first {WORDS} words; titles that fewer than "
             f"{SECTIONS} training sections have, and sections of fewer than {FEWEST} words, are left out. Test "
             "articles, in brackets the 95 % interval over rows; beside it the best simple method.")
    rows = [row for seed in SEEDS for row in lines(seed, quick=quick)]
    return Section("Titles of sections", about, rows, [f"`{RUNS}` holds the rows, and every run with its settings."])


def lines(seed: int, *, quick: bool) -> Iterator[Row]:
    """Learn once, and yield a line for each way of counting."""
    run = finetuned(RUNS / ("quick" * quick) / str(seed), "summarization", "t5-nano", files(), [
        f"training.epochs={1 if quick else EPOCHS}", "training.batch=32", "training.length=128",
        f"training.seed={seed}", "recipe.model.layers=2", f"recipe.tokenizer.vocab={1000 if quick else 2000}",
        *muon(5e-3, 5e-3), *(["data.limit=64"] if quick else [])])
    found = scores(run)
    for name in ("ROUGE-1", "ROUGE-L"):
        own = named(found["scores"], name)
        simple = {method: named(theirs, name)["value"] for method, theirs in found["baselines"].items()}
        best = max(simple, key=lambda method: simple[method])
        yield Row(f"{name}, seed {seed}, {took(run) / 60:.1f} minutes", said(own), f"{best} {simple[best]:.3f}",
                  target="above", reached=own["value"] > simple[best])


def files() -> tuple[Path, Path]:
    """Write the rows, unless they are there."""
    train, test = (RUNS / "data" / f"{part}.tsv" for part in ("train", "test"))
    if not (train.is_file() and test.is_file()):
        learned, asked = (list(titled(needed("lm", "wikitext2", f"{path.stem}.txt"))) for path in (train, test))
        known = Counter(title for _, title in learned)
        for path, rows in ((train, learned), (test, asked)):
            write_rows(path, ("document", "summary"), [row for row in rows if known[row[1]] >= SECTIONS])
    return train, test


def titled(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of sections, and their titles."""
    for title, words in sections(path.read_text(encoding="utf-8").splitlines()):
        if UNKNOWN not in title and len(words) >= FEWEST:
            yield " ".join(words[:WORDS]), title


def sections(text: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each section, and its words; what stands before the first title has none."""
    title, words = UNKNOWN, list[str]()
    for line in text:
        if heading := HEADING.fullmatch(line):
            yield title, words
            title, words = heading["title"], []
        else:
            words += line.split()
    yield title, words
