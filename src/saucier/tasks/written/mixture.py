"""A mixture: several tasks whose answers are texts, learned by one model, each scored by its own metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.examples import Column, Example, Tally, cells
from saucier.tasks.sheet import Sheet, joined_sheets, some_rows
from saucier.tasks.task import Answer, Encoding, Json, Part, Reading
from saucier.tasks.written.mixing import Floats, MixedSheetBatches, capped, mixing_rates
from saucier.tasks.written.mixture_config import Declared, Member, Mixture, Proportional, Temperature
from saucier.tasks.written.prompts import Prompt
from saucier.tasks.written.writing import WritingTask
from saucier.text.rows import Ints
from saucier.text.sources import Source
from saucier.text.tables import columns_of
from saucier.text.tokenizer import Tokenizer

NAMED = Column("task", ())
UNNAMED = ""
"""The name of a text that a person typed without one."""
SHOWN = 12
"""Tasks that are listed by name."""


@dataclass(frozen=True, slots=True)
class Portion(Example):
    """An example of one of the tasks."""

    of: str
    """The task's name."""
    inner: Any
    """The example itself."""


@dataclass(frozen=True, slots=True)
class Group:
    """Examples whose tasks are the same but for their names."""

    task: WritingTask[Any]
    numbers: list[int]
    """Which of all examples these are."""

    def examples(self, portions: Sequence[Portion]) -> list[Any]:
        """Return the examples themselves."""
        return [portions[number].inner for number in self.numbers]


@dataclass(frozen=True, slots=True)
class MixedTask(WritingTask[Portion]):
    """Several tasks at once."""

    members: dict[str, WritingTask[Any]] = field(hash=False)
    """The tasks, by name, as the config has them."""
    each: WritingTask[Any]
    """The task of rows whose name only a column says."""
    config: Mixture

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[Portion]:
        """Yield the rows of a file by the task whose file it is, or whose name stands in the row."""
        if self.config.by is not None:
            yield from named_rows(self, source, tally, labelled=labelled)
            return
        name = owner(source, self.config.tasks)
        for one in self.members[name].read(source, tally, labelled=labelled):
            yield Portion(one.place, one.name, name, one)

    def member(self, name: str) -> WritingTask[Any]:
        """Return the task of a name, also of one that training did not have."""
        return self.members.get(name, self.each)

    def of(self, examples: Sequence[Portion]) -> dict[str, list[int]]:
        """Return which examples are of which task."""
        found: dict[str, list[int]] = {name: [] for name in self.members}
        for number, one in enumerate(examples):
            found.setdefault(one.of, []).append(number)
        return found

    def groups(self, examples: Sequence[Portion]) -> list[Group]:
        """Put together what is the same task under several names, so that it is encoded and answered in one go."""
        found: dict[str, Group] = {}
        for name, numbers in self.of(examples).items():
            task = self.member(name)
            group = found.setdefault(f"{task.config.kind} {task.config.model_dump_json()}", Group(task, []))
            group.numbers.extend(numbers)
        return [group for group in found.values() if group.numbers]

    def with_members(self, members: dict[str, WritingTask[Any]], each: WritingTask[Any]) -> MixedTask:
        """Return the mixture with what its tasks have learned of their rows."""
        tasks = {name: Member(task=one.config, files=self.config.tasks[name].files if name in self.config.tasks else ())
                 for name, one in members.items()}
        config = self.config.model_copy(update={"tasks": tasks, "each": each.config})
        return replace(self, config=config, members=members, each=each)

    def learned(self, examples: Sequence[Portion]) -> MixedTask:
        """Let each task learn its labels. Raises `InputError` for a task without rows, or without a declared rate."""
        members = {}
        for name, numbers in self.of(examples).items():
            if not numbers:
                raise InputError(f"no training row is of {name}", where=f"task.tasks.{name}",
                                 remedy="give its file too, or leave the task out")
            members[name] = self.member(name).learned([examples[number].inner for number in numbers])
        said = self.config.rates.rates if isinstance(self.config.rates, Declared) else members
        if bare := sorted(members.keys() - said.keys()):
            raise InputError(f"no rate for {', '.join(bare[:SHOWN])}", where="task.rates.rates",
                             remedy="declare one for every task, or choose another kind of rates")
        return self.with_members(members, self.each)

    def spelled(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer as each task in turn returns it."""
        for one in self.members.values():
            tokenizer = one.spelled(tokenizer)
        return tokenizer

    def check(self, examples: Sequence[Portion]) -> None:
        """Check each task's rows."""
        for part in self.parts(examples):
            part.task.check(part.examples)

    def parts(self, examples: Sequence[Portion]) -> list[Part]:
        """Each task that has examples."""
        return [Part(name, self.member(name), [examples[number].inner for number in numbers], numbers)
                for name, numbers in self.of(examples).items() if numbers]

    def sheet(self, examples: Sequence[Portion], encoding: Encoding) -> Sheet:
        """Encode each task's rows, conversations one in a row."""
        places = {name: place for place, name in enumerate(self.of(examples))}
        owners = np.array([places[one.of] for one in examples], dtype=np.int64)
        sheets = []
        for group in self.groups(examples):
            found = unpacked(group.task).sheet(group.examples(examples), encoding)
            items = np.array(group.numbers, dtype=np.int64)[found.item]
            sheets.append(replace(found, item=items, part=owners[items]))
        return joined_sheets(sheets)

    def fitted(self, sheet: Sheet) -> MixedTask:
        """Let each task take the length of its longest response; of tasks in a column, that of all responses."""
        assert sheet.part is not None, "made by `sheet`"
        own = {name: some_rows(sheet, np.flatnonzero(sheet.part == number)) if self.config.by is None else sheet
               for number, name in enumerate(self.members)}
        each = self.each if self.config.by is None else self.each.fitted(sheet)
        return self.with_members({name: one.fitted(own[name]) for name, one in self.members.items()}, each)

    def sizes(self, sheet: Sheet) -> Ints:
        """Return how many rows each task has, one for each text that is to be written. Shapes: [M]."""
        assert sheet.part is not None, "made by `sheet`"
        return np.bincount(sheet.part, minlength=len(self.members))

    def rates(self, sizes: Sequence[int]) -> Floats:
        """Return how often each task comes, by their numbers of rows."""
        return mixing_rates(self.config.rates, sizes, list(self.members))

    def batches(self, sheet: Sheet, batch: int, *, seed: int) -> MixedSheetBatches:
        """Mix the tasks by their rates. An epoch has as many rows as count: of a task at most the cap."""
        sizes = self.sizes(sheet)
        counted = int(capped(sizes.astype(np.float64), cap_of(self.config)).sum())
        assert sheet.part is not None, "made by `sheet`"
        return MixedSheetBatches(sheet, self.rates(sizes.tolist()), batch, size=counted, seed=seed)

    def remarks(self, sheet: Sheet) -> Iterator[str]:
        """Say how often each task comes in the batches; of many tasks the first ones, and the range."""
        rates = self.rates(self.sizes(sheet).tolist()).tolist()
        listed = ", ".join(f"{name} {rate:.1%}" for name, rate in list(zip(self.members, rates, strict=True))[:SHOWN])
        more = f", and {len(rates) - SHOWN} more tasks, from {min(rates):.2%} to {max(rates):.2%}"
        yield f"each comes at a rate of {listed}{more if len(rates) > SHOWN else ''}"

    def manner(self, encoding: Encoding) -> dict[str, Any]:
        """That of the first task, with room for the longest answer of all."""
        all_of_them = [one.manner(encoding) for one in self.members.values()]
        return all_of_them[0] | {"max_new_tokens": max(one.get("max_new_tokens", 0) for one in all_of_them)}

    def answers(self, reading: Reading, examples: Sequence[Portion], sheet: Sheet) -> list[Answer]:
        """Let the model write, task by task."""
        found: dict[int, Answer] = {}
        for group in self.groups(examples):
            answers = group.task.answers(reading, group.examples(examples), sheet)
            found |= {number: replace(one, more=one.more | {"task": examples[number].of})
                      for number, one in zip(group.numbers, answers, strict=True)}
        return [found[number] for number in range(len(examples))]

    def prompt(self, example: Portion, encoding: Encoding) -> Prompt:
        """That of its task."""
        return self.member(example.of).prompt(example.inner, encoding)

    def responses(self, example: Portion) -> Sequence[str]:
        """Those of its task."""
        return self.member(example.of).responses(example.inner)

    def to_write(self, example: Portion) -> tuple[str, ...]:
        """Those of its task."""
        return self.member(example.of).to_write(example.inner)

    def around(self, example: Portion, body: c.Transformer) -> tuple[str, ...]:
        """That of its task."""
        return self.member(example.of).around(example.inner, body)

    def gold(self, example: Portion) -> Json | list[Json]:
        """That of its task."""
        return self.member(example.of).gold(example.inner)

    def texts(self, example: Portion) -> tuple[str, ...]:
        """Those of its task."""
        return self.member(example.of).texts(example.inner)

    def typed(self, texts: tuple[str, ...], example: Example) -> Portion:
        """A text from the command line, with the name of its task before it: `sst2 ||| a fine film`.

        Tasks that a column tells apart need no name. Raises `InputError` where one is needed.
        """
        named = texts[0] in self.members and len(texts) > 1
        if not named and self.config.by is None:
            raise InputError("which task is it of?", where="--text",
                             remedy=f"write '{next(iter(self.members))} ||| TEXT'")
        name, said = (texts[0], texts[1:]) if named else (UNNAMED, texts)
        return Portion(example.place, example.name, name, self.member(name).typed(said, example))

    def classes(self, example: Portion) -> Sequence[str]:
        """The name of its task, so that rows are counted by it."""
        return (example.of,)


def named_rows(task: MixedTask, source: Source, tally: Tally, *, labelled: bool) -> Iterator[Portion]:
    """Yield the rows of a file by the task that a column names. Raises `InputError` for a row without a name.

    Rows that are only to be answered need none: then a file may lack the column.
    """
    if not labelled and task.config.by not in columns_of(source):
        yield from (Portion(one.place, one.name, UNNAMED, one) for one in task.each.read(source, tally, labelled=False))
        return
    named = {row.example.place: row.word(NAMED.role) for row in cells(source, (NAMED,), {NAMED.role: task.config.by})}
    for one in task.each.read(source, tally, labelled=labelled):
        yield Portion(one.place, one.name, named[one.place], one)


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
