"""The labelled files of a fine-tuning: read, split, checked, and what a person should know of them before training."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saucier.errors import InputError
from saucier.finetuning.config import LabelledFiles
from saucier.tasks.examples import Example, Tally
from saucier.tasks.task import Task
from saucier.text.sources import find_sources

Examples = list[Any]


@dataclass(frozen=True, slots=True)
class Splits:
    """The examples of a fine-tuning."""

    task: Task[Any]
    """The task, which now knows its labels."""
    train: Examples
    held_out: Examples
    test: Examples
    """Empty where there is no file for it."""
    counted: Mapping[str, Tally] = field(default_factory=dict)
    """What was skipped, dropped or repaired in the files of each."""

    def named(self) -> dict[str, Examples]:
        """Return those that are not empty, by name."""
        found = {"train": self.train, "held-out": self.held_out, "test": self.test}
        return {name: examples for name, examples in found.items() if examples}


def read_examples(task: Task[Any], files: Iterable[str], *, labelled: bool = True,
                  tally: Tally | None = None) -> Examples:
    """Read all examples of some files; the tally counts what was done to them.

    Raises `InputError` for a file without any.
    """
    found: Examples = []
    tally = Tally() if tally is None else tally
    for source in find_sources(list(files)):
        before = len(found)
        found += task.read(source, tally, labelled=labelled)
        if len(found) == before:
            raise InputError("has no rows", where=source.name, remedy="leave it out")
    return found


def read_splits(task: Task[Any], files: LabelledFiles, *, seed: int = 0) -> Splits:
    """Read the files, hold rows out where there is no file for it, and let the task learn its labels.

    Raises `InputError` for what cannot be used, such as a label that stands only in the held-out file.
    """
    counted = {name: Tally() for name in ("train", "held-out", "test")}
    train = read_examples(task, files.train, tally=counted["train"])
    held_out = read_examples(task, files.held_out, tally=counted["held-out"])
    if not files.held_out:
        train, held_out = split(task, train, files.share, seed)
    if files.limit is not None:
        train = train[:files.limit]
    test = read_examples(task, files.test, tally=counted["test"])
    learned = task.learned(train)
    for examples in (train, held_out, test):
        learned.check(examples)
    return Splits(learned, train, held_out, test, counted)


def split(task: Task[Any], examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Hold out a share of the rows, by their texts: equal texts stay together, and more rows change no row's side.

    Raises `InputError` where one side would be empty.
    """
    train: Examples = []
    held_out: Examples = []
    for one in examples:
        (held_out if drawn(task.apart(one), seed) < share else train).append(one)
    if not train or not held_out:
        raise InputError(f"{len(examples)} rows are too few to hold {share:.0%} of them out",
                         where=examples[0].place.file, remedy="give --held-out FILE")
    return train, held_out


def drawn(texts: tuple[str, ...], seed: int) -> float:
    """Return a number in [0, 1) that depends on texts and seed alone."""
    digest = hashlib.sha256("\x00".join((str(seed), *texts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Rows that stand more than once."""

    inside: int
    """Rows whose texts stood before in the same split."""
    contradicting: int
    """Texts that stand with different labels."""
    leaked: int
    """Rows whose texts stand in the training split too."""
    first: str | None
    """Where the first leaked row stands."""


def repeats(task: Task[Any], examples: Sequence[Example], train: Sequence[Example]) -> Repeats:
    """Count repeated rows of a split, and those that the training split has too (none, for that split itself)."""
    keys = [task.texts(one) for one in examples]
    known = {task.texts(one) for one in train} if examples is not train else set()
    said: dict[tuple[str, ...], set[str]] = {}
    for key, one in zip(keys, examples, strict=True):
        said.setdefault(key, set()).add(repr(task.gold(one)))
    leaked = [one for key, one in zip(keys, examples, strict=True) if key in known]
    return Repeats(len(keys) - len(said), sum(len(golds) > 1 for golds in said.values()), len(leaked),
                   str(leaked[0].place) if leaked else None)


def class_counts(task: Task[Any], examples: Sequence[Example]) -> Counter[str]:
    """Count the labels of a split, the commonest first."""
    return Counter(dict(Counter(label for one in examples for label in task.classes(one)).most_common()))
