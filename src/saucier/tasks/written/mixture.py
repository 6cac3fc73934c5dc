"""A mixture: several tasks whose answers are texts, learned by one model, each scored by its own metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from saucier.errors import InputError
from saucier.tasks.examples import Example, Tally
from saucier.tasks.sheet import Sheet, joined_sheets, some_rows
from saucier.tasks.task import Answer, Encoding, Json, Part, Reading
from saucier.tasks.written.mixing import Floats, MixedSheetBatches, capped, mixing_rates
from saucier.tasks.written.mixture_config import Member, Mixture, Proportional, Temperature
from saucier.tasks.written.prompts import Prompt
from saucier.tasks.written.writing import WritingTask
from saucier.text.sources import Source


@dataclass(frozen=True, slots=True)
class Portion(Example):
    """An example of one of the tasks."""

    of: str
    """The task's name."""
    inner: Any
    """The example itself."""


@dataclass(frozen=True, slots=True)
class MixedTask(WritingTask[Portion]):
    """Several tasks at once."""

    members: dict[str, WritingTask[Any]] = field(hash=False)
    """The tasks, by name, as the config has them."""
    config: Mixture

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[Portion]:
        """Yield the rows of a file by the task whose file it is."""
        name = owner(source, self.config.tasks)
        for one in self.members[name].read(source, tally, labelled=labelled):
            yield Portion(one.place, one.name, name, one)

    def of(self, examples: Sequence[Portion]) -> dict[str, list[int]]:
        """Return which examples are of which task."""
        found: dict[str, list[int]] = {name: [] for name in self.members}
        for number, one in enumerate(examples):
            found[one.of].append(number)
        return found

    def with_members(self, members: dict[str, WritingTask[Any]]) -> MixedTask:
        """Return the mixture with what its tasks have learned of their rows."""
        tasks = {name: Member(task=members[name].config, files=one.files) for name, one in self.config.tasks.items()}
        return replace(self, config=self.config.model_copy(update={"tasks": tasks}), members=members)

    def learned(self, examples: Sequence[Portion]) -> MixedTask:
        """Let each task learn its labels. Raises `InputError` for a task without rows."""
        members = {}
        for name, numbers in self.of(examples).items():
            if not numbers:
                raise InputError(f"no training row is of {name}", where=f"task.tasks.{name}.files",
                                 remedy="give its file too, or leave the task out")
            members[name] = self.members[name].learned([examples[number].inner for number in numbers])
        return self.with_members(members)

    def check(self, examples: Sequence[Portion]) -> None:
        """Check each task's rows."""
        for part in self.parts(examples):
            part.task.check(part.examples)

    def parts(self, examples: Sequence[Portion]) -> list[Part]:
        """Each task that has examples."""
        return [Part(name, self.members[name], [examples[number].inner for number in numbers], numbers)
                for name, numbers in self.of(examples).items() if numbers]

    def sheet(self, examples: Sequence[Portion], encoding: Encoding) -> Sheet:
        """Encode each task's rows, conversations one in a row."""
        sheets, names = [], list(self.members)
        for part in self.parts(examples):
            found = unpacked(part.task).sheet(part.examples, encoding)
            items = np.array(part.numbers, dtype=np.int64)[found.item]
            sheets.append(replace(found, item=items, part=np.full(len(found), names.index(part.name))))
        return joined_sheets(sheets)

    def fitted(self, sheet: Sheet) -> MixedTask:
        """Let each task take the length of its longest response."""
        assert sheet.part is not None, "made by `sheet`"
        return self.with_members({name: one.fitted(some_rows(sheet, np.flatnonzero(sheet.part == number)))
                                  for number, (name, one) in enumerate(self.members.items())})

    def rates(self, sizes: Sequence[int]) -> Floats:
        """Return how often each task comes, by their numbers of rows."""
        return mixing_rates(self.config.rates, sizes, list(self.members))

    def batches(self, sheet: Sheet, batch: int, *, seed: int) -> MixedSheetBatches:
        """Mix the tasks by their rates. An epoch has as many rows as count: of a task at most the cap."""
        assert sheet.part is not None, "made by `sheet`"
        sizes = np.bincount(sheet.part, minlength=len(self.members))
        counted = int(capped(sizes.astype(np.float64), cap_of(self.config)).sum())
        return MixedSheetBatches(sheet, self.rates(sizes.tolist()), batch, size=counted, seed=seed)

    def remarks(self, examples: Sequence[Portion]) -> Iterator[str]:
        """Say how often each task comes."""
        found = self.of(examples)
        rates = self.rates([len(numbers) for numbers in found.values()])
        yield "each comes at a rate of " + ", ".join(f"{name} {rate:.1%}" for name, rate in
                                                     zip(found, rates.tolist(), strict=True))

    def manner(self, encoding: Encoding) -> dict[str, Any]:
        """That of the first task, with room for the longest answer of all."""
        all_of_them = [one.manner(encoding) for one in self.members.values()]
        return all_of_them[0] | {"max_new_tokens": max(one.get("max_new_tokens", 0) for one in all_of_them)}

    def answers(self, reading: Reading, examples: Sequence[Portion], sheet: Sheet) -> list[Answer]:
        """Let the model write, task by task."""
        found: dict[int, Answer] = {}
        for part in self.parts(examples):
            answers = part.task.answers(reading, part.examples, sheet)
            found |= {number: replace(one, more=one.more | {"task": part.name})
                      for number, one in zip(part.numbers, answers, strict=True)}
        return [found[number] for number in range(len(examples))]

    def prompt(self, example: Portion, encoding: Encoding) -> Prompt:
        """That of its task."""
        return self.members[example.of].prompt(example.inner, encoding)

    def responses(self, example: Portion) -> Sequence[str]:
        """Those of its task."""
        return self.members[example.of].responses(example.inner)

    def gold(self, example: Portion) -> Json | list[Json]:
        """That of its task."""
        return self.members[example.of].gold(example.inner)

    def texts(self, example: Portion) -> tuple[str, ...]:
        """Those of its task."""
        return self.members[example.of].texts(example.inner)

    def typed(self, texts: tuple[str, ...], example: Example) -> Portion:
        """A text from the command line, with the name of its task before it: `sst2 ||| a fine film`."""
        if texts[0] not in self.members or len(texts) < 2:
            raise InputError("which task is it of?", where="--text",
                             remedy=f"write '{next(iter(self.members))} ||| TEXT'")
        return Portion(example.place, example.name, texts[0], self.members[texts[0]].typed(texts[1:], example))

    def classes(self, example: Portion) -> Sequence[str]:
        """The name of its task, so that rows are counted by it."""
        return (example.of,)


def unpacked(task: Any) -> WritingTask[Any]:
    """Return a task that puts each example into a row of its own, so that rates are those of examples."""
    packs = getattr(task.config, "packing", False)
    found: WritingTask[Any] = replace(task, config=task.config.model_copy(update={"packing": False})) if packs else task
    return found


def cap_of(config: Mixture) -> int | None:
    """Return the most rows that count of a task; None: all."""
    return config.rates.cap if isinstance(config.rates, Proportional | Temperature) else None


def owner(source: Source, tasks: dict[str, Member]) -> str:
    """Return the task whose file this is. Raises `InputError` for a file of none, and of several."""
    path = str(Path(source.name).absolute()) if source.name != "-" else source.name
    found = [name for name, one in tasks.items()
             if any(fnmatch(path, pattern) for pattern in one.files or (f"*{name}*",))]
    if len(found) != 1:
        raise InputError("is of no task" if not found else f"is of several tasks: {', '.join(found)}",
                         where=source.name, remedy="say which files are whose: task.tasks.NAME.files")
    return found[0]
