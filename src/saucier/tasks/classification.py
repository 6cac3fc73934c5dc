"""Tasks on whole texts and pairs: one class, many labels, a number. Letters: N texts, C classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.objectives.base import Objective
from saucier.objectives.labelling import Classes as ClassesObjective
from saucier.objectives.labelling import ManyLabels as ManyLabelsObjective
from saucier.objectives.labelling import Numbers as NumbersObjective
from saucier.tasks.config import Classification, ManyLabels, Regression
from saucier.tasks.examples import SCORE, Cells, Column
from saucier.tasks.labelled_texts import LabelledText, NamedLabels, OneClass, TextTask, text_head
from saucier.tasks.labels import label_numbers, refuse_unknown
from saucier.tasks.learned_words import with_words
from saucier.tasks.sheet import Sheet
from saucier.tasks.task import Answer, Json, Reading, Wanted

HALF = 0.5
"""The probability from which a label counts as said."""
SUREST = 3
"""Classes whose probabilities are told."""


def rounded(chances: dict[str, float]) -> dict[str, float]:
    """Return probabilities as they are told."""
    return {name: round(chance, 4) for name, chance in chances.items()}


@dataclass(frozen=True, slots=True)
class Classes(OneClass, NamedLabels[str]):
    """One class for each text."""

    config: Classification

    @property
    def objective(self) -> Objective:
        """Cross-entropy."""
        return with_words(ClassesObjective(), self.config.form)

    def label(self, row: Cells) -> str:
        """Any word."""
        return row.word("label")

    def learned(self, examples: Sequence[LabelledText[str]]) -> Classes:
        """Take the classes from the file, unless they are given; either way the file must have two of them."""
        found = sorted({one.label for one in examples if one.label is not None})
        if len(found) < 2:
            raise InputError(f"has one class only, {found[0]!r}" if found else "has no classes",
                             where=examples[0].place.file, remedy="give texts of two classes or more")
        learned: Classes = self.with_labels(found)
        return learned

    def targets(self, labels: Sequence[str]) -> NDArray[Any]:
        """Shapes: [N], numbers of classes."""
        return label_numbers(labels, self.config.labels)

    def answers(self, reading: Reading, examples: Sequence[LabelledText[str]], sheet: Sheet) -> list[Answer]:
        """The likeliest class, with the probabilities of the likeliest ones."""
        labels = self.config.labels
        sure, which = reading.logits(sheet).softmax(-1).topk(min(SUREST, len(labels)))
        return [Answer(labels[order[0]], chances[0], {"probabilities": rounded(
            {labels[number]: chance for number, chance in zip(order, chances, strict=True)})})
                for chances, order in zip(sure.tolist(), which.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class LabelSets(NamedLabels[tuple[str, ...]]):
    """Any number of labels for each text."""

    config: ManyLabels

    @property
    def objective(self) -> Objective:
        """A decision for each label."""
        return with_words(ManyLabelsObjective(), self.config.form)

    def label(self, row: Cells) -> tuple[str, ...]:
        """A list of words, or words in one cell; none is a legal answer."""
        value = row.values.get("label")
        if value is None:
            return ()
        parts = value if isinstance(value, list) else str(value).split(self.config.separator)
        return tuple(dict.fromkeys(str(part).strip() for part in parts if str(part).strip()))

    def learned(self, examples: Sequence[LabelledText[tuple[str, ...]]]) -> LabelSets:
        """Take the labels from the file, unless they are given."""
        found = {label for one in examples for label in one.label or ()}
        if not found:
            raise InputError("has no labels", where=examples[0].place.file, remedy="give texts that have some")
        learned: LabelSets = self.with_labels(found)
        return learned

    def check(self, examples: Sequence[LabelledText[tuple[str, ...]]]) -> None:
        """Every label must be known."""
        refuse_unknown([(one, label) for one in examples for label in one.label or ()], self.config.labels)

    def targets(self, labels: Sequence[tuple[str, ...]]) -> NDArray[Any]:
        """Shapes: [N, C] of 0 and 1."""
        return np.array([[name in one for name in self.config.labels] for one in labels], dtype=np.int64)

    def answers(self, reading: Reading, examples: Sequence[LabelledText[tuple[str, ...]]],
                sheet: Sheet) -> list[Answer]:
        """The labels that are likelier than not."""
        told = [dict(zip(self.config.labels, chances, strict=True))
                for chances in reading.logits(sheet).sigmoid().tolist()]
        return [Answer([name for name, chance in one.items() if chance > HALF],
                       min(max(chance, 1 - chance) for chance in one.values()), {"probabilities": rounded(one)})
                for one in told]

    @property
    def scored_as(self) -> str:
        """As many labels."""
        return "many_labels"

    def gold(self, example: LabelledText[tuple[str, ...]]) -> Json:
        """The labels, in the order in which they are predicted."""
        known = {label: place for place, label in enumerate(self.config.labels)}
        return None if example.label is None else sorted(example.label, key=lambda label: known.get(label, len(known)))

    def classes(self, example: LabelledText[tuple[str, ...]]) -> Sequence[str]:
        """The labels."""
        return example.label or ()


@dataclass(frozen=True, slots=True)
class Numbers(TextTask[float]):
    """A number for each text."""

    config: Regression

    @property
    def target(self) -> Column:
        """The number."""
        return SCORE

    @property
    def wanted(self) -> Wanted:
        """One output."""
        return text_head(self.config, ("score",), 1)

    @property
    def objective(self) -> Objective:
        """Squared error."""
        return with_words(NumbersObjective(), self.config.form)

    def label(self, row: Cells) -> float:
        """Any number."""
        return row.number("score")

    def learned(self, examples: Sequence[LabelledText[float]]) -> Numbers:
        """Numbers that are all equal teach nothing."""
        if len({one.label for one in examples}) < 2:
            raise InputError("has the same number in every row", where=examples[0].place.file,
                             remedy="give texts with different scores")
        return self

    def targets(self, labels: Sequence[float]) -> NDArray[Any]:
        """Shapes: [N]."""
        return np.array(labels, dtype=np.float32)

    def answers(self, reading: Reading, examples: Sequence[LabelledText[float]], sheet: Sheet) -> list[Answer]:
        """The number itself."""
        return [Answer(value) for value in reading.logits(sheet).flatten().tolist()]

    @property
    def scored_as(self) -> str:
        """As numbers."""
        return "numbers"

    def gold(self, example: LabelledText[float]) -> Json:
        """The number."""
        return example.label
