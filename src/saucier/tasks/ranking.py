"""Ranking texts by their relevance to a query, which a model reads together with each. Letters: N rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives.base import Objective
from saucier.objectives.labelling import ManyLabels
from saucier.tasks.config import Ranking
from saucier.tasks.examples import LABEL, Cells, Column
from saucier.tasks.labelled_texts import LabelledText, TextTask, text_head
from saucier.tasks.learned_words import with_words
from saucier.tasks.sheet import Sheet
from saucier.tasks.task import Answer, Json, Reading, Wanted

QUERY = Column("text", ("query", "question", "text", "sentence1", "text1"))
CANDIDATE = Column("pair", ("passage", "sentence", "document", "candidate", "pair", "answer", "sentence2", "text2",
                            "text"))
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Relevance(TextTask[float]):
    """A number for each pair of a query and a text."""

    config: Ranking

    @property
    def read_from(self) -> tuple[Column, Column]:
        """The query, and a text that may answer it: both are needed."""
        return QUERY, CANDIDATE

    @property
    def target(self) -> Column:
        """The relevance."""
        return LABEL

    @property
    def wanted(self) -> Wanted:
        """One output."""
        return text_head(self.config, ("relevance",), 1)

    @property
    def objective(self) -> Objective:
        """Relevant or not."""
        return with_words(ManyLabels(), self.config.form)

    def label(self, row: Cells) -> float:
        """Any number."""
        return row.number("label")

    def learned(self, examples: Sequence[LabelledText[float]]) -> Relevance:
        """Texts that are all relevant, or none, teach nothing."""
        if len({relevant(one.label) for one in examples if one.label is not None}) < 2:
            raise InputError("has no relevant text, or none that is not", where=examples[0].place.file,
                             remedy="give rows of both, relevance above 0 and 0")
        return self

    def targets(self, labels: Sequence[float]) -> NDArray[Any]:
        """Shapes: [N, 1] of 0 and 1."""
        return np.array([[relevant(one)] for one in labels], dtype=np.int64)

    def answers(self, reading: Reading, examples: Sequence[LabelledText[float]], sheet: Sheet) -> list[Answer]:
        """The probability that a text is relevant; its query stands beside it, for `saucier score --group query`."""
        chances = reading.logits(sheet).double().sigmoid().flatten().tolist()
        return [Answer(chance, None, {"query": one.text}) for one, chance in zip(examples, chances, strict=True)]

    @property
    def scored_as(self) -> str:
        """As rankings."""
        return "rankings"

    def gathered(self, examples: Sequence[LabelledText[float]], values: Sequence[T]) -> list[list[T]]:
        """The values of all rows of a query together."""
        found: dict[str, list[T]] = {}
        for one, value in zip(examples, values, strict=True):
            found.setdefault(one.text, []).append(value)
        return [*found.values()]

    def gold(self, example: LabelledText[float]) -> Json:
        """The relevance."""
        return example.label

    def apart(self, example: LabelledText[float]) -> tuple[str, ...]:
        """A query's rows stay together."""
        return (example.text,)


def relevant(label: float) -> bool:
    """Whether a number means that a text is relevant."""
    return label > 0
