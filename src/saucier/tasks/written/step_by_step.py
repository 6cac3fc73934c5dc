"""Distilling step by step: the reasons of an answer are a second thing to write, and cost nothing when it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from saucier import config as c
from saucier.objectives.base import IGNORED
from saucier.objectives.prediction import Prediction
from saucier.objectives.second import SecondTokens
from saucier.tasks.examples import Column, Example, Tally, cells
from saucier.tasks.sheet import Ragged, Sheet
from saucier.tasks.task import Encoding
from saucier.tasks.written.config import StepByStep
from saucier.tasks.written.prompts import Prompt, Taught, two_sides, writing_sheet
from saucier.tasks.written.texts import INPUT, TARGET
from saucier.tasks.written.writing import WritingTask, longest_response
from saucier.text.sources import Source

RATIONALE = Column("rationale", ("rationale", "explanation", "reason", "steps", "reasoning"))
REASONS = "rationale_labels"
"""The targets of rows whose reasons are wanted, in the batch."""


@dataclass(frozen=True, slots=True)
class Reasoned(Example):
    """A text, the answer, and why."""

    text: str
    target: str | None
    rationale: str | None


@dataclass(frozen=True, slots=True)
class Reasoning(WritingTask[Reasoned]):
    """An answer, with its reasons learned beside it."""

    config: StepByStep

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[Reasoned]:
        """Yield texts with answers and reasons; reasons are needed only where they are learned."""
        reasons = replace(RATIONALE, needed=self.config.weight > 0)
        asked = {role: getattr(self.config, role) for role in ("input", "target", "rationale")}
        for row in cells(source, (INPUT, TARGET, reasons) if labelled else (INPUT,), asked):
            why = row.text("rationale") if labelled and "rationale" in row.values and self.config.weight else None
            yield Reasoned(row.example.place, row.example.name, row.text("input"),
                           row.word("target") if labelled else None, why)

    def asked(self, example: Reasoned, prefix: str, encoding: Encoding) -> Prompt:
        """The text behind what says whether answer or reasons are wanted."""
        after = "" if two_sides(encoding.body) else self.config.between
        return Prompt(prefix + self.config.prefix, example.text, after)

    def prompt(self, example: Reasoned, encoding: Encoding) -> Prompt:
        """The question for the answer."""
        return self.asked(example, self.config.label_prefix, encoding)

    def responses(self, example: Reasoned) -> Sequence[str]:
        """The answer."""
        return () if example.target is None else (example.target,)

    def to_write(self, example: Reasoned) -> tuple[str, ...]:
        """The answer, and the reasons where they are learned."""
        return (*self.responses(example), *(() if example.rationale is None else (example.rationale,)))

    def around(self, example: Reasoned, body: c.Transformer) -> tuple[str, ...]:
        """The prefix, and what says whether answer or reasons are wanted."""
        second = () if example.rationale is None else (self.config.rationale_prefix,)
        return (*WritingTask.around(self, example, body), self.config.label_prefix, *second)

    def sheet(self, examples: Sequence[Reasoned], encoding: Encoding) -> Sheet:
        """Lay out answers, and behind them the reasons, whose targets stand apart."""
        first = list(self.taught(examples, encoding))
        second = [Taught(self.asked(one, self.config.rationale_prefix, encoding), one.rationale, number)
                  for number, one in enumerate(examples) if one.rationale is not None]
        sheet = writing_sheet([*first, *second], encoding, self.config.writing.tokens)
        return with_reasons(sheet, len(first)) if second else sheet

    def fitted(self, sheet: Sheet) -> Reasoning:
        """Take the length of the longest answer, for the answers that are asked for; targets are cut by rows alone."""
        if self.config.writing.tokens is not None:
            return self
        told = self.config.writing.model_copy(update={"tokens": longest_response(sheet)})
        return replace(self, config=self.config.model_copy(update={"writing": told}))

    @property
    def objective(self) -> Prediction:
        """The tokens of the answers, and λ times those of the reasons, each a mean of its own."""
        reasons = (SecondTokens(REASONS, "rationale", self.config.weight),) if self.config.weight else ()
        return Prediction(beside=reasons)

    def texts(self, example: Reasoned) -> tuple[str, ...]:
        """What is read."""
        return (example.text,)

    def typed(self, texts: tuple[str, ...], example: Example) -> Reasoned:
        """A text from the command line."""
        return Reasoned(example.place, example.name, texts[0], None, None)


def with_reasons(sheet: Sheet, answers: int) -> Sheet:
    """Move the targets of all units from number `answers` on to a place of their own."""
    labels = sheet.wide["labels"]
    inside = np.arange(len(labels.values)) < labels.offsets[answers]
    apart = {"labels": replace(labels, values=np.where(inside, labels.values, IGNORED)),
             REASONS: Ragged(np.where(inside, IGNORED, labels.values), labels.offsets, IGNORED)}
    return replace(sheet, wide={**sheet.wide, **apart})
