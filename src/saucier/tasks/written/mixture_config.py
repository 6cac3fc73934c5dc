"""Several tasks in one model as data: which, and how often each comes. No torch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from saucier.config.base import Config
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


class Member(Config):
    """A task of a mixture."""

    task: Ingredient
    """What is learned."""
    files: tuple[str, ...] = ()
    """Patterns of the files that are its own, such as `*/sst2/*`; none: those with its name in their path."""


class Mixture(Config):
    """Several tasks whose answers are texts, learned by one model, which tells them apart by what it reads.

    Source: Raffel et al. 2020, §2.4 and §3.5.2, arXiv:1910.10683; Wei et al. 2022 (FLAN), §2.1, arXiv:2109.01652.
    """

    kind: Literal["mixture"] = "mixture"
    tasks: dict[str, Member] = Field(min_length=2)
    """The tasks, by name."""
    rates: Rates = Proportional()
    """How often each comes."""

    @model_validator(mode="after")
    def all_declared(self) -> Self:
        """Declared rates are those of all tasks."""
        if isinstance(self.rates, Declared) and self.rates.rates.keys() != self.tasks.keys():
            raise ValueError(f"rates are of {', '.join(self.rates.rates)}, and the tasks are {', '.join(self.tasks)}")
        return self


WrittenTask = TextToText | Translation | Summarization | LabelToText | NumberToText | Instruction | StepByStep | Mixture
"""Any task whose answer is a text."""
