"""Answers learned with their reasons beside them, and alone: five tasks, three seeds.

`python -m benchmarks reasons`. What is finished is kept in `runs/reasons`, and is not done again. The reasons of SST-2
are written by a larger model: MiniLM, fine-tuned on all of its rows by `benchmarks.compression`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.compression import CHAINED, make_teacher
from benchmarks.cooking import needed
from benchmarks.long_keys import BOOKS, HELD_OUT_BOOK
from benchmarks.long_runs import muon
from benchmarks.long_texts import COLOURS, hidden_keys, sentence, write_rows
from benchmarks.section import Row, Section
from benchmarks.tuned import finetuned, rights, took

RUNS = Path("runs/reasons")
HELD_OUT, QUICK_ROWS = 1000, 24
UPDATES = 600
"""Of answers alone; with reasons each has as many answers, and as many reasons beside them."""
BATCH = 32
SEEDS = (0, 1, 2)
DRAWS = 2_000
KEY_WORDS, DOOR_WORDS, MOST_WORDS, DEPTH = 40, 30, 5, 3
OPINIONS = {"1": "good", "0": "bad"}
Rows = Iterator[tuple[str, str, str]]
"""Answers, inputs, reasons."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One task."""

    name: str
    reason: str
    """What its reasons are."""
    size: int
    """Rows to learn from."""
    make: Callable[[bool, int, int], Rows]
    """Makes rows: whether they are held out, how many, and from which seed."""
    vocab: int = 1000
    """Tokens that are learned from its rows."""
    more: int = 0
    """Tokens that its reasons add: a vocabulary larger than its text gives is refused."""


def measure(quick: bool) -> Section:
    """Learn every task both ways."""
    about = (f"`saucier finetune step_by_step --model t5-nano`, from nothing (two layers of 128), {UPDATES:,} updates "
             f"of {BATCH} rows. Exact match on up to {HELD_OUT:,} held-out rows, mean of the seeds; differences with "
             "the 95 % interval of a paired bootstrap over seeds and rows.")
    rows = [compare(puzzle, SEEDS[:1] if quick else SEEDS, quick) for puzzle in (PUZZLES[:1] if quick else PUZZLES)]
    return Section("Answers with reasons", about, rows, [f"`{RUNS}` holds the rows, and every run with its settings."])


def compare(puzzle: Puzzle, seeds: tuple[int, ...], quick: bool) -> Row:
    """Learn a task with and without reasons."""
    from saucier.tasks.metrics.statistics import paired_difference

    found: dict[int, list[list[float]]] = {1: [], 0: []}
    seconds = 0.0
    for seed in seeds:
        for weight, answered in found.items():
            run = learned(puzzle, seed, weight, quick)
            answered.append(rights(run))
            seconds += took(run)
    reasoned, alone = (np.array(answered) for answered in found.values())
    gap = paired_difference(reasoned, alone, np.ones(reasoned.shape[1]), draws=DRAWS)
    return Row(f"{puzzle.name}, {puzzle.size:,} rows; reasons: {puzzle.reason} ({seconds:.0f} s)",
               f"with reasons {reasoned.mean():.3f}", f"answers alone {alone.mean():.3f}; difference {gap.value:+.3f} "
               f"({gap.low:+.3f} … {gap.high:+.3f})", target="better", reached=gap.low > 0)


def learned(puzzle: Puzzle, seed: int, weight: int, quick: bool) -> Path:
    """Learn with reasons of a weight, unless that is done."""
    rows_of_an_answer = 2 if weight else 1
    size, vocab = (QUICK_ROWS, min(300, puzzle.vocab)) if quick else (puzzle.size, puzzle.vocab + weight * puzzle.more)
    place = RUNS / ("quick" * quick) / puzzle.name
    files = (write(puzzle, place, False, size, seed), write(puzzle, place, True, QUICK_ROWS if quick else HELD_OUT, 0))
    return finetuned(place / f"{size}-{weight}-{seed}", "step_by_step", "t5-nano", files,
                     [f"training.epochs={1 if quick else UPDATES * BATCH // size}",
                      f"training.batch={BATCH * rows_of_an_answer}", f"training.seed={seed}", f"task.weight={weight}",
                      "recipe.model.layers=2", f"recipe.tokenizer.vocab={vocab}", *muon(1e-2, 1e-2)])


def write(puzzle: Puzzle, place: Path, held_out: bool, count: int, seed: int) -> Path:
    """Write rows, unless they are there; those that are held out are the same for all seeds of a training."""
    path = place / f"{'dev' if held_out else 'train'}-{count}-{seed}.tsv"
    return path if path.is_file() else write_rows(path, ("target", "input", "rationale"),
                                                  puzzle.make(held_out, count, 2 * seed + held_out))


def make_keys(held_out: bool, count: int, seed: int) -> Rows:
    """Yield colours of a key, stretches of a novel, and the sentences there that tell the colours."""
    for colour, text in hidden_keys(books(held_out), count, KEY_WORDS, seed):
        yield colour, text, " ".join(sentence("key", colour))


def make_doors(held_out: bool, count: int, seed: int) -> Rows:
    """Yield whether key and door are of one colour, stretches of a novel, and the sentences that tell both."""
    draw = random.Random(seed)
    for colour, text in hidden_keys(books(held_out), count, DOOR_WORDS, seed):
        other = colour if draw.random() < 0.5 else draw.choice([one for one in COLOURS if one != colour])
        words = text.split()
        inside = {at + step for at, word in enumerate(words) if words[at + 2:at + 3] == ["is"] and word == "The"
                  for step in (1, 2, 3)}
        place = draw.choice([at for at in range(len(words)) if at not in inside])
        told = " ".join(sentence("door", other))
        yield ("yes" if other == colour else "no", " ".join([*words[:place], told, *words[place:]]),
               f"{' '.join(sentence('key', colour))} {told}")


def make_nests(held_out: bool, count: int, seed: int) -> Rows:
    """Yield values of nested maxima and minima, the expressions, and the values of their parts from the inside."""
    draw = random.Random(seed)

    def grow(depth: int) -> tuple[int, str, list[str]]:
        """Return a value, its expression, and its steps."""
        if not depth or (depth < DEPTH and draw.random() < 0.3):
            digit = draw.randrange(10)
            return digit, str(digit), []
        (first, left, one), (second, right, two) = grow(depth - 1), grow(depth - 1)
        name, value = draw.choice((("MAX", max(first, second)), ("MIN", min(first, second))))
        return value, f"( {name} {left} {right} )", [*one, *two, f"{name} {first} {second} = {value}"]

    for _ in range(count):
        value, text, steps = grow(DEPTH)
        yield str(value), text, " , ".join(steps)


def make_questions(held_out: bool, count: int, seed: int) -> Rows:
    """Yield coarse classes of questions, the questions, and their fine classes."""
    rows = read_table("trec", held_out)
    for coarse, fine, text in random.Random(seed).sample(rows, min(count, len(rows))):
        yield coarse, text, fine.replace(":", " ")


def make_opinions(held_out: bool, count: int, seed: int) -> Rows:
    """Yield opinions, sentences, and what a larger model makes of the words there of which it is surest."""
    import saucier

    rows = read_table("sst2", held_out)
    rows = random.Random(seed).sample(rows, min(count, len(rows)))
    words = sorted({word for _, text in rows for word in text.split() if any(map(str.isalpha, word))})
    said = saucier.predict(make_teacher(CHAINED, SEEDS[0], quick=False), texts=words).rows
    sure = {word: (row.extras["confidence"], OPINIONS[str(row.prediction)])
            for word, row in zip(words, said, strict=True)}
    for label, text in rows:
        known = list(dict.fromkeys(word for word in text.split() if word in sure))
        best = sorted(known, key=lambda word: -sure[word][0])[:MOST_WORDS]
        yield OPINIONS[label], text, " ".join(f"{word} {sure[word][1]}" for word in known if word in best) or "nothing"


def books(held_out: bool) -> list[Path]:
    """Return the novels to learn from, or another one."""
    return [needed("long", name) for name in ((HELD_OUT_BOOK,) if held_out else BOOKS)]


def read_table(name: str, held_out: bool) -> list[list[str]]:
    """Read the rows of a classification."""
    path = needed("classification", name, "dev.tsv" if held_out else "train.tsv")
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]


PUZZLES = (
    Puzzle("colour of a key in 40 words", "the sentence that tells it", 4000, make_keys),
    Puzzle("key and door of one colour", "both sentences", 4000, make_doors),
    Puzzle("nested maxima and minima", "the steps", 4000, make_nests, vocab=60, more=8),
    Puzzle("TREC, coarse classes", "the fine class", 1000, make_questions),
    Puzzle("SST-2", "words with a larger model's opinion", 1000, make_opinions))
