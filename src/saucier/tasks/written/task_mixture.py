"""A mixture: several tasks whose answers are texts, learned by one model at rates that are a pure function of
seed and step, each scored by its own metrics.

Axes: U units of the encoded examples, M tasks, S units that an epoch shows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.encoded_examples import EncodedExamples, EncodedRows, join_encoded, take_rows
from saucier.tasks.examples import Column, Example, Place, Tally, read_cells, read_each
from saucier.tasks.task import Answer, Encoding, Json, Predictor, ScoredPart
from saucier.tasks.written.definitions import Declared, Equal, Member, Mixture, Proportional, Temperature
from saucier.tasks.written.prompts import Prompt
from saucier.tasks.written.task import WritingTask
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns
from saucier.text.rows.batch import Ints, make_generator
from saucier.text.rows.bucketed import BatchLimits, BucketedBatches, LengthPlan
from saucier.text.tokenizer.tokenizer import Tokenizer

Floats = NDArray[np.float64]
OFFSET, ORDER = 12, 13
"""Streams of random numbers."""


def mixing_rates(rates: Any, sizes: Sequence[int], names: Sequence[str]) -> Floats:
    """Return how often each task comes; they sum to one, and a task without rows never comes. Shapes: [M].

    Source: Raffel et al. 2020, §3.5.2: r_m = min(e_m, K) / Σ min(e_n, K), and r_m^(1/T) scaled to sum to one.
    """
    counted = np.asarray(sizes, dtype=np.float64)
    match rates:
        case Proportional(cap=cap):
            found = cap_sizes(counted, cap)
        case Temperature(temperature=temperature, cap=cap):
            found = cap_sizes(counted, cap) ** (1 / temperature)
        case Equal():
            found = np.ones(len(counted))
        case Declared(rates=said):
            found = np.array([said.get(name, 0.0) for name in names])
    found = np.where(counted > 0, found, 0.0)  # of nothing, nothing comes
    return found / float(found.sum())


def cap_sizes(sizes: Floats, cap: int | None) -> Floats:
    """Return sizes of at most `cap`. Shapes: [M]."""
    return sizes if cap is None else np.minimum(sizes, cap)


class Draws:
    """Which units an epoch shows: each task as often as its rate says, its units in turn, shuffled in every round."""

    def __init__(self, part: Ints, rates: Floats, size: int, seed: int) -> None:
        """`part` [U] is the task of each unit, `size` the units of an epoch."""
        self._members = [np.flatnonzero(part == number) for number in range(len(rates))]
        self._borders, self._size, self._seed = np.cumsum(rates), size, seed

    def counts(self, epoch: int) -> Ints:
        """Return how many units of each task an epoch shows: its rate of all, rounded up or down. Shapes: [M].

        Points in even steps from a random offset are dealt to the tasks by their rates (systematic sampling), so the
        mean over epochs is the rate itself.
        """
        points = (np.arange(self._size) + make_generator(self._seed, OFFSET, epoch).random()) / self._size
        tasks = np.searchsorted(self._borders / self._borders[-1], points, side="right")
        return np.bincount(tasks.clip(max=len(self._borders) - 1), minlength=len(self._borders))

    def units(self, epoch: int) -> Ints:
        """Return the units of an epoch, task by task. Shapes: [S]."""
        before = sum((self.counts(one) for one in range(epoch)), np.zeros(len(self._members), dtype=np.int64))
        return np.concatenate([self.turn(number, int(first), int(count)) for number, (first, count)
                               in enumerate(zip(before, self.counts(epoch), strict=True))])

    def turn(self, task: int, first: int, count: int) -> Ints:
        """Return the next `count` units of a task that has shown `first` already. Shapes: [count]."""
        rounds, slots = np.divmod(np.arange(first, first + count), max(1, len(self._members[task])))
        orders = {int(one): make_generator(self._seed, ORDER, task, int(one)).permutation(self._members[task])
                  for one in np.unique(rounds)}
        return np.array([orders[int(one)][slot] for one, slot in zip(rounds, slots, strict=True)], dtype=np.int64)


class MixedBatches(BucketedBatches[EncodedRows]):
    """Endless batches of a mixture, in each of which all tasks may come; an epoch has as many units as count."""

    def __init__(self, encoded: EncodedExamples, rates: Floats, batch: int, *, size: int, seed: int = 0) -> None:
        """Plan batches of at most `batch` units, `size` units in an epoch."""
        assert encoded.task_numbers is not None, "a mixture tells its tasks apart"
        units = functools.lru_cache(maxsize=2)(Draws(encoded.task_numbers, rates, size, seed).units)

        def plan(epoch: int) -> LengthPlan:
            return LengthPlan(encoded.lengths[units(epoch)], BatchLimits(batch=batch), seed)

        self._units, self._plans = units, functools.lru_cache(maxsize=2)(plan)
        super().__init__(plan(0), functools.partial(EncodedRows, encoded))

    def _items(self, step: int) -> Ints:
        epoch = step // self.steps_per_epoch
        return self._units(epoch)[self._plans(epoch).shuffled_batch(step)]


NAMED = Column("task", ())
UNNAMED = ""
"""The name of a text that a person typed without one."""
SHOWN = 12
"""Tasks that are listed by name."""


@dataclass(frozen=True, slots=True)
class MixtureExample(Example):
    """An example of one of the tasks."""

    of: str
    """The task's name."""
    inner: Any
    """The example itself."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of the example itself."""
        return tuple(self.inner.texts)


@dataclass(frozen=True, slots=True)
class MixtureTask(WritingTask):
    """Several tasks at once."""

    members: dict[str, WritingTask] = field(hash=False)
    """The tasks, by name, as the config has them."""
    each: WritingTask
    """The task of rows whose name only a column says."""
    config: Mixture

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[MixtureExample]:
        """Yield the rows of a file by the task whose file it is, or whose name is in a column.

        Rows that are only to be answered need no name: then a file may lack the column. Raises `InputError` for a row
        without a name.
        """
        by, named = self.config.by, dict[Place, str]()
        name = UNNAMED if by is not None else task_of_file(source, self.config.tasks)
        if by is not None and (labelled or by in list_columns(source)):
            rows = read_cells(source, (NAMED,), {NAMED.role: by})
            named = dict(read_each(rows, lambda row: (row.example.place, row.word(NAMED.role)), source))
        for one in self.member(name).read(source, tally, labelled=labelled):
            if named and one.place not in named:
                continue  # which was reported
            yield MixtureExample(one.place, one.name, named.get(one.place, name), one)

    def member(self, name: str) -> WritingTask:
        """Return the task of a name, also of one that training did not have."""
        return self.members.get(name, self.each)

    def of(self, examples: Sequence[MixtureExample]) -> dict[str, list[int]]:
        """Return which examples are of which task."""
        found: dict[str, list[int]] = {name: [] for name in self.members}
        for number, one in enumerate(examples):
            found.setdefault(one.of, []).append(number)
        return found

    def groups(self, examples: Sequence[MixtureExample]) -> list[ScoredPart]:
        """Put together what is the same task under several names, so that it is encoded and answered in one go."""
        found: dict[str, ScoredPart] = {}
        for part in self.scored_parts(examples):
            group = found.setdefault(part.task.config.model_dump_json(), ScoredPart("", part.task, [], []))
            group.examples.extend(part.examples)
            group.numbers.extend(part.numbers)
        return list(found.values())

    def with_members(self, members: dict[str, WritingTask], each: WritingTask) -> Self:
        """Return the mixture with what its tasks have learned of their rows."""
        tasks = {name: Member(task=one.config, files=self.config.tasks[name].files if name in self.config.tasks else ())
                 for name, one in members.items()}
        config = self.config.model_copy(update={"tasks": tasks, "each": each.config})
        return replace(self, config=config, members=members, each=each)

    def fit_labels(self, examples: Sequence[MixtureExample]) -> Self:
        """Let each task learn its labels. Raises `InputError` for a task without rows, or without a declared rate."""
        members = {}
        for name, numbers in self.of(examples).items():
            if not numbers:
                raise InputError(f"no training row is of {name}", where=f"task.tasks.{name}",
                                 remedy="give its file too, or leave the task out")
            members[name] = self.member(name).fit_labels([examples[number].inner for number in numbers])
        said = self.config.rates.rates if isinstance(self.config.rates, Declared) else members
        if bare := sorted(members.keys() - said.keys()):
            raise InputError(f"no rate for {', '.join(bare[:SHOWN])}", where="task.rates.rates",
                             remedy="declare one for every task, or choose another kind of rates")
        return self.with_members(members, self.each)

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer as each task in turn returns it."""
        for one in self.members.values():
            tokenizer = one.extend_tokenizer(tokenizer)
        return tokenizer

    def check_labels(self, examples: Sequence[MixtureExample], *, measured: bool = False) -> None:
        """Check each task's rows."""
        for part in self.scored_parts(examples):
            part.task.check_labels(part.examples, measured=measured)

    def scored_parts(self, examples: Sequence[MixtureExample]) -> list[ScoredPart]:
        """Each task that has examples."""
        return [ScoredPart(name, self.member(name), [examples[number].inner for number in numbers], numbers)
                for name, numbers in self.of(examples).items() if numbers]

    def encode(self, examples: Sequence[MixtureExample], encoding: Encoding) -> EncodedExamples:
        """Encode each task's rows, conversations one in a row."""
        places = {name: place for place, name in enumerate(self.of(examples))}
        owners = np.array([places[one.of] for one in examples], dtype=np.int64)
        encoded_tasks = []
        for group in self.groups(examples):
            task = group.task  # each example in a row of its own, so that rates are those of examples
            task = task.with_config(packing=False) if getattr(task.config, "packing", False) else task
            found = task.encode(group.examples, encoding)
            items = np.array(group.numbers, dtype=np.int64)[found.example_numbers]
            encoded_tasks.append(replace(found, example_numbers=items, task_numbers=owners[items]))
        return join_encoded(encoded_tasks)

    def fit_lengths(self, encoded: EncodedExamples) -> Self:
        """Let each task take the length of its longest response; of tasks in a column, that of all responses."""
        assert encoded.task_numbers is not None, "made by `encode`"
        own = {name: encoded if self.config.by is not None
               else take_rows(encoded, np.flatnonzero(encoded.task_numbers == number))
               for number, name in enumerate(self.members)}
        each = self.each if self.config.by is None else self.each.fit_lengths(encoded)
        return self.with_members({name: one.fit_lengths(own[name]) for name, one in self.members.items()}, each)

    def sizes(self, encoded: EncodedExamples) -> Ints:
        """Return how many rows each task has, one for each text that is to be written. Shapes: [M]."""
        assert encoded.task_numbers is not None, "made by `encode`"
        return np.bincount(encoded.task_numbers, minlength=len(self.members))

    def rates(self, sizes: Sequence[int]) -> Floats:
        """Return how often each task comes, by their numbers of rows."""
        return mixing_rates(self.config.rates, sizes, list(self.members))

    def batches(self, encoded: EncodedExamples, batch: int, *, seed: int) -> MixedBatches:
        """Mix the tasks by their rates. An epoch has as many rows as count: of a task at most the cap."""
        sizes = self.sizes(encoded)
        counted = int(cap_sizes(sizes.astype(np.float64), getattr(self.config.rates, "cap", None)).sum())
        return MixedBatches(encoded, self.rates(sizes.tolist()), batch, size=counted, seed=seed)

    def training_notes(self, encoded: EncodedExamples) -> tuple[str, ...]:
        """Say how often each task comes in the batches; of many tasks the first ones, and the range."""
        rates = self.rates(self.sizes(encoded).tolist()).tolist()
        listed = ", ".join(f"{name} {rate:.1%}" for name, rate in list(zip(self.members, rates, strict=True))[:SHOWN])
        more = f", and {len(rates) - SHOWN} more tasks, from {min(rates):.2%} to {max(rates):.2%}"
        return (f"each comes at a rate of {listed}{more if len(rates) > SHOWN else ''}",)

    def generation_settings(self, encoding: Encoding) -> dict[str, Any]:
        """That of the first task, with room for the longest answer of all."""
        all_of_them = [one.generation_settings(encoding) for one in self.members.values()]
        return all_of_them[0] | {"max_new_tokens": max(one.get("max_new_tokens", 0) for one in all_of_them)}

    def predict(self, predictor: Predictor, examples: Sequence[MixtureExample],
                encoded: EncodedExamples) -> list[Answer]:
        """Let the model write, task by task."""
        found: dict[int, Answer] = {}
        for group in self.groups(examples):
            answers = group.task.predict(predictor, group.examples, encoded)
            found |= {number: replace(one, more=one.more | {"task": examples[number].of})
                      for number, one in zip(group.numbers, answers, strict=True)}
        return [found[number] for number in range(len(examples))]

    def prompt(self, example: MixtureExample, encoding: Encoding) -> Prompt:
        """That of its task."""
        return self.member(example.of).prompt(example.inner, encoding)

    def responses(self, example: MixtureExample) -> Sequence[str]:
        """Those of its task."""
        return self.member(example.of).responses(example.inner)

    def surrounding_texts(self, example: MixtureExample, body: c.Transformer) -> tuple[str, ...]:
        """That of its task."""
        return self.member(example.of).surrounding_texts(example.inner, body)

    def gold(self, example: MixtureExample) -> Json | list[Json]:
        """That of its task."""
        return self.member(example.of).gold(example.inner)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> MixtureExample:
        """A text from the command line, with the name of its task before it: `sst2 ||| a fine film`.

        Tasks that are named in a column need no name here. Raises `InputError` where one is needed.
        """
        named = texts[0] in self.members and len(texts) > 1
        if not named and self.config.by is None:
            raise InputError("which task is it of?", where="--text",
                             remedy=f"write '{next(iter(self.members))} ||| TEXT'")
        name, said = (texts[0], texts[1:]) if named else (UNNAMED, texts)
        return MixtureExample(example.place, example.name, name, self.member(name).from_texts(said, example))

    def classes(self, example: MixtureExample) -> Sequence[str]:
        """The name of its task, so that rows are counted by it."""
        return (example.of,)


def task_of_file(source: SourceFile, tasks: dict[str, Member]) -> str:
    """Return the task whose file this is. Raises `InputError` for a file of none, and of several."""
    path = str(Path(source.name).absolute()) if source.name != "-" else source.name
    found = [name for name, one in tasks.items()
             if any(fnmatch(path, pattern) for pattern in one.files or (f"*{name}*",))]
    if len(found) != 1:
        raise InputError("is of no task" if not found else f"is of several tasks: {', '.join(found)}",
                         where=source.name, remedy="say which files are whose: task.tasks.NAME.files")
    return found[0]
