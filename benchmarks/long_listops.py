"""ListOps: the value of a nested expression of 100 to 600 tokens, learned from nothing; a part of `long_tasks`.

Source of the task: Nangia and Bowman 2018, arXiv:1804.06028; of its long form: Tay et al. 2021, arXiv:2011.04006.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cooking import SHARED
from benchmarks.long_runs import RUNS, muon
from benchmarks.section import Row
from benchmarks.tuned import accuracy, finetuned, said, took

FILES = (SHARED / "long" / "listops" / "train.tsv", SHARED / "long" / "listops" / "dev.tsv")
EPOCHS, BATCH, LENGTH, SHORT = 4, 16, 640, 64
"""Tokens that are read of a row, and those that short context reads."""
WORDS = ("recipe.tokenizer={kind: words, vocab: 22, special: {pad: <pad>, unk: <unk>, mask: <mask>, cls: <s>, "
         "sep: </s>, single: <s> $A </s>, pair: <s> $A </s> </s> $B </s>}}",)
"""Ten digits, four operators, a bracket, and the special tokens."""
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
    return found


def learned(case: Case, length: int, *, quick: bool) -> Path:
    """Learn from so many tokens of a row."""
    words = ("training.epochs=1", "data.limit=64") if quick else (f"training.epochs={EPOCHS}",)
    return finetuned(RUNS / ("quick" * quick) / f"listops-{case.recipe}-{length}", "classification", case.recipe, FILES,
                     ["task.labels=['0','1','2','3','4','5','6','7','8','9']", f"training.length={length}",
                      f"training.batch={BATCH}", *WORDS, *muon(3e-3, 1.2e-3), *case.words, *words])


def by_operator() -> float:
    """Return how often the commonest training answer of the outermost operator is right."""
    train, held_out = ([line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
                       for path in FILES)
    answers: dict[str, Counter[str]] = {}
    for label, text in train:
        answers.setdefault(text.split()[0], Counter())[label] += 1
    return sum(answers[text.split()[0]].most_common(1)[0][0] == label for label, text in held_out) / len(held_out)
