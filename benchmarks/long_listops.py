"""ListOps: the value of a nested expression of 100 to 600 tokens, learned from nothing; a part of `long_tasks`.

Beside it stands what is lacking: how far an expression must be computed, and which operations a model learns that is
told the value of every bracket.

Source of the task: Nangia and Bowman 2018, arXiv:1804.06028; of its long form: Tay et al. 2021, arXiv:2011.04006.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.cooking import SHARED
from benchmarks.long_runs import RUNS, muon
from benchmarks.section import Row
from benchmarks.tuned import accuracy, finetuned, named, said, scores, took

FILES = (SHARED / "long" / "listops" / "train.tsv", SHARED / "long" / "listops" / "dev.tsv")
EPOCHS, BATCH, LENGTH, SHORT = 4, 16, 640, 64
"""Tokens that are read of a row, and those that short context reads."""
WORDS = ("recipe.tokenizer={kind: words, vocab: 22, special: {pad: <pad>, unk: <unk>, mask: <mask>, cls: <s>, "
         "sep: </s>, single: <s> $A </s>, pair: <s> $A </s> </s> $B </s>}}",)
"""Ten digits, four operators, a bracket, and the special tokens."""
OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MAX": max, "[MIN": min, "[MED": lambda values: int(median(values)), "[SM": lambda values: sum(values) % 10}
DEPTHS = (1, 2, 3)
TAUGHT = ("recipe.model.dim=96", "recipe.model.layers=5", "recipe.model.hidden=256")
"""Of the LLaMA that is told the value of every bracket."""
TAUGHT_EPOCHS = 3
ABOUT = ("ListOps: `[MAX 2 [MIN 7 4 ] 0 ]` and the like, to ten levels deep, 3,000 rows to learn from and 300 held "
         "out; beside it, the commonest answer of the outermost operator.")


@dataclass(frozen=True, slots=True)
class Case:
    """A recipe, and what is otherwise about it."""

    name: str
    recipe: str
    words: tuple[str, ...]


CASES = (Case("Longformer, four layers of 64, windows of 32 and a global first token", "longformer-nano",
              ("recipe.model.dim=64", "recipe.model.window=[32,32,32,32]", f"recipe.model.length={LENGTH + 2}")),)


def rows(*, quick: bool) -> list[Row]:
    """Learn every case, and once from the first tokens alone."""
    found = []
    for case in CASES:
        long, short = learned(case, LENGTH, quick=quick), learned(case, SHORT, quick=quick)
        operator = by_operator()
        found.append(Row(f"ListOps, {case.name}: accuracy, seed 0, {took(long):.0f} s", said(accuracy(long)),
                         f"outermost operator {operator:.3f}", target="above",
                         reached=bool(accuracy(long)["value"] > operator)))
        found.append(Row(f"the same, the first {SHORT} tokens alone", said(accuracy(short))))
    found += [Row(f"ListOps, computed to {depth} brackets deep, all else left out", f"{by_depth(depth):.3f}")
              for depth in DEPTHS]
    return [*found, *taught_rows(quick=quick)]


def learned(case: Case, length: int, *, quick: bool) -> Path:
    """Learn from so many tokens of a row."""
    words = ("training.epochs=1", "data.limit=64") if quick else (f"training.epochs={EPOCHS}",)
    return finetuned(RUNS / ("quick" * quick) / f"listops-{case.recipe}-{length}", "classification", case.recipe, FILES,
                     ["task.labels=['0','1','2','3','4','5','6','7','8','9']", f"training.length={length}",
                      f"training.batch={BATCH}", *WORDS, *muon(3e-3, 1.2e-3), *case.words, *words])


def read(path: Path) -> list[list[str]]:
    """Return the rows of a file: answer, expression."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]


def by_operator() -> float:
    """Return how often the commonest training answer of the outermost operator is right."""
    train, held_out = map(read, FILES)
    answers: dict[str, Counter[str]] = {}
    for label, text in train:
        answers.setdefault(text.split()[0], Counter())[label] += 1
    return sum(answers[text.split()[0]].most_common(1)[0][0] == label for label, text in held_out) / len(held_out)


@dataclass(frozen=True, slots=True)
class Bracket:
    """An operation of an expression."""

    operator: str
    place: int
    """Of the bracket that closes it, among the words."""
    within: int
    """How many operations it stands in."""
    inner: bool
    """Whether it holds no other operation."""
    value: int | None
    """None where nothing is left of what it takes."""


def brackets(words: Sequence[str], deepest: int | None = None) -> Iterator[Bracket]:
    """Yield the operations of an expression as they close; those in `deepest` others or more have no value."""
    begun: list[tuple[str, list[int], list[bool]]] = []
    for place, word in enumerate(words):
        if word.startswith("["):
            if begun:
                begun[-1][2].append(True)
            begun.append((word, [], []))
        elif word != "]":
            begun[-1][1].append(int(word))
        else:
            operator, values, holds = begun.pop()
            cut = deepest is not None and len(begun) >= deepest
            value = None if cut or not values else OPERATORS[operator](values)
            if begun and value is not None:
                begun[-1][1].append(value)
            yield Bracket(operator, place, len(begun), not holds, value)


def by_depth(depth: int) -> float:
    """Return how often the value is right that is computed without what stands deeper."""
    held_out = read(FILES[1])
    return sum(str([*brackets(text.split(), depth)][-1].value) == answer for answer, text in held_out) / len(held_out)


def taught_rows(*, quick: bool) -> list[Row]:
    """Learn the value of every closing bracket as its tag; tell which operations are learned, and how many rows."""
    run = taught(quick=quick)
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for line in (run / "predictions" / "held-out.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for one in brackets(row["texts"][0].split()):
            names = [one.operator.removeprefix("[")] * one.inner + ["whole rows"] * (one.within == 0)
            seen.update(names)
            right.update(names * (row["gold"][one.place] == row["prediction"][one.place]))
    shares = ", ".join(f"{name} {right[name] / seen[name]:.3f} of {seen[name]:,}" for name in sorted(seen))
    return [Row(f"ListOps, LLaMA of five layers of 96 that is told the value of every bracket, {took(run):.0f} s: "
                "accuracy of tags", said(named(scores(run)["scores"], "tag accuracy"))),
            Row("the same: innermost operations, and whole rows", shares)]


def taught(*, quick: bool) -> Path:
    """Write the expressions as tagged words, and learn them."""
    place = RUNS / ("quick" * quick) / "listops-taught"
    files = [place.with_name(f"{place.name}-{path.stem}.conll") for path in FILES]
    place.parent.mkdir(parents=True, exist_ok=True)
    for path, target in zip(FILES, files, strict=True):
        target.write_text("".join(f"{tagged(text.split())}\n" for _, text in read(path)), encoding="utf-8")
    words = ("training.epochs=1", "data.limit=64") if quick else (f"training.epochs={TAUGHT_EPOCHS}",)
    return finetuned(place, "tagging", "llama-nano", (files[0], files[1]), [
        f"training.length={LENGTH}", "training.batch=8", *WORDS, *muon(5e-3, 2e-3), *TAUGHT, *words])


def tagged(words: Sequence[str]) -> str:
    """Return an expression as lines of a word and its tag: the value at a closing bracket."""
    values = {one.place: one.value for one in brackets(words)}
    return "".join(f"{word}\t{values.get(place, 'O')}\n" for place, word in enumerate(words))
