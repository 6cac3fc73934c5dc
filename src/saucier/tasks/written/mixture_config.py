"""Several tasks in one model as data: which, and how often each comes. No torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from saucier.config.base import Config
from saucier.tasks.columns import ColumnName
from saucier.tasks.written.config import (
    Instruction,
    LabelToText,
    NumberToText,
    StepByStep,
    Summarization,
    TextToText,
    Translation,
)

Share = Annotated[float, Field(gt=0)]


class Proportional(Config):
    """As often as a task has rows, of which at most `cap` count. Source: Raffel et al. 2020, §3.5.2 (eq of r_m)."""

    kind: Literal["proportional"] = "proportional"
    cap: int | None = Field(default=None, gt=0)
    """A task with more rows counts as one with so many; None: all count."""


class Temperature(Config):
    """Proportional rates to the power 1/T, scaled to one again: 1 is proportional, infinitely many is equal.

    Source: Raffel et al. 2020, §3.5.2, arXiv:1910.10683.
    """

    kind: Literal["temperature"] = "temperature"
    temperature: float = Field(default=2.0, ge=1)
    """T."""
    cap: int | None = Field(default=None, gt=0)
    """As in proportional rates; the source uses 2^21 here."""


class Equal(Config):
    """Every task as often as every other."""

    kind: Literal["equal"] = "equal"


class Declared(Config):
    """As often as is said."""

    kind: Literal["declared"] = "declared"
    rates: dict[str, Share]
    """How often each task comes, by name; only their ratios count."""


Rates = Annotated[Proportional | Temperature | Equal | Declared, Field(discriminator="kind")]
"""How often each task of a mixture comes."""
Ingredient = Annotated[TextToText | Translation | Summarization | LabelToText | NumberToText | Instruction,
                       Field(discriminator="kind")]


LEARNED = ("labels", "writing")
"""What a task of a column learns from its rows."""


class Member(Config):
    """A task of a mixture."""

    task: Ingredient
    """What is learned."""
    files: tuple[str, ...] = ()
    """Patterns of the files that are its own, such as `*/sst2/*`; none: those with its name in their path."""


class Mixture(Config):
    """Several tasks whose answers are texts, learned by one model, which tells them apart by what it reads.

    Their rows stand in files of their own, or in the same files with a column that names each row's task.

    Source: Raffel et al. 2020, §2.4 and §3.5.2, arXiv:1910.10683; Wei et al. 2022 (FLAN), §2.1, arXiv:2109.01652.
    """

    kind: Literal["mixture"] = "mixture"
    tasks: dict[str, Member] = Field(default_factory=dict)
    """The tasks, by name; with `by` they are found in the training rows."""
    by: ColumnName = None
    """The column that names the task of each row; None: a file belongs to one task."""
    each: Ingredient = Instruction()
    """What each of them is, where a column tells them apart."""
    rates: Rates = Proportional()
    """How often each comes."""

    @model_validator(mode="after")
    def tasks_are_told_apart(self) -> Self:
        """There are two tasks or more, or a column that names them."""
        if self.by is None and len(self.tasks) < 2:
            raise ValueError("tasks are needed: name the column that tells them apart with task.by=COLUMN, or two "
                             "tasks or more, each with files of its own, as task.tasks in a file of settings")
        return self

    @model_validator(mode="after")
    def tasks_of_a_column_are_alike(self) -> Self:
        """Tasks that a column names read the same columns."""
        def form(task: Config) -> dict[str, object]:
            return task.model_dump(exclude=set(LEARNED))

        if self.by is not None and (other := [name for name, one in self.tasks.items()
                                              if form(one.task) != form(self.each)]):
            raise ValueError(f"{other[0]} is not like task.each, and tasks in a column are all alike")
        return self

    @model_validator(mode="after")
    def all_declared(self) -> Self:
        """Declared rates are those of all tasks."""
        if self.by is None and isinstance(self.rates, Declared) and self.rates.rates.keys() != self.tasks.keys():
            raise ValueError(f"rates are of {', '.join(self.rates.rates)}, and the tasks are {', '.join(self.tasks)}")
        return self


WrittenTask = TextToText | Translation | Summarization | LabelToText | NumberToText | Instruction | StepByStep | Mixture
"""Any task whose answer is a text."""
