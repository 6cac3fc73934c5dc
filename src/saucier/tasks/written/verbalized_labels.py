"""Labels and numbers as words: a class by its name, a similarity as "3.8", read back from what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.classification import LABEL_KINDS, LabelledTextTask
from saucier.tasks.definitions import Classification, Regression
from saucier.tasks.examples import parse_finite
from saucier.tasks.labelled_texts import LabelledText, sort_labels
from saucier.tasks.task import Answer, Encoding
from saucier.tasks.written.definitions import LabelToText, NumberToText
from saucier.tasks.written.prompts import Prompt, between_texts
from saucier.tasks.written.task import WritingTask
from saucier.text.tokenizer.tokenizer import Tokenizer

NO_NUMBER = -1.0
"""What a text counts as that is no number. Source: Raffel et al. 2020, code release (`string_to_float`)."""


class VerbalizedTask(LabelledTextTask, WritingTask, Protocol):
    """A task that predicts one thing of a text, or of a pair of texts, by writing it."""

    def word(self, label: Any) -> str:
        """Return what is written for it."""

    def prompt(self, example: LabelledText, encoding: Encoding) -> Prompt:
        """The text after its prefix, or both texts, each after its name; only the first is cut."""
        after = between_texts(self.config, encoding.body)
        if example.pair is None:
            return Prompt(self.config.prefix, example.text, after)
        return Prompt(self.config.prefix + self.config.first, example.text, self.config.second + example.pair + after)

    def responses(self, example: LabelledText) -> Sequence[str]:
        """The word for the label."""
        return () if example.label is None else (self.word(example.label),)

    def surrounding_texts(self, example: LabelledText, body: c.Transformer) -> tuple[str, ...]:
        """The prefix, and the names of two texts."""
        names = () if example.pair is None else (self.config.first, self.config.second)
        return (*WritingTask.surrounding_texts(self, example, body), *names)


@dataclass(frozen=True, slots=True)
class LabelToTextTask(VerbalizedTask):
    """One of several classes, written as its word."""

    config: LabelToText
    kind = LABEL_KINDS[Classification]

    def word(self, label: str) -> str:
        """Its own word, or the label itself."""
        return self.config.words.get(label, label)

    def fit_labels(self, examples: Sequence[LabelledText]) -> Self:
        """Take the classes from the file, unless they are given. Raises `InputError` for one class, and one word."""
        found = sort_labels([one.label for one in examples if one.label is not None])
        labels = self.config.labels or found
        if len(found) < 2 or len({self.word(label) for label in labels}) < len(labels):
            raise InputError("has one class only, or two classes that are told by the same word",
                             where=examples[0].place.file, remedy="give texts of two classes or more, and task.words")
        return self.with_config(labels=labels)

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer as it is. Raises `InputError` where two classes are the same tokens to it."""
        known: dict[tuple[int, ...], str] = {}
        for label in self.config.labels:
            other = known.setdefault(tuple(tokenizer.target.encode(self.word(label))), label)
            if other != label:
                raise InputError(f"to the tokenizer the words of {other!r} and {label!r} are the same",
                                 where="task.words", remedy="give words that it knows and tells apart")
        return tokenizer

    def answer(self, text: str) -> Answer:
        """The class whose word was written; none for any other text, which is wrong."""
        known = {self.word(label): label for label in self.config.labels}
        return Answer(known.get(text), None, {} if text in known else {"text": text})


@dataclass(frozen=True, slots=True)
class NumberToTextTask(VerbalizedTask):
    """A number, rounded and written. Source: Raffel et al. 2020, §2.4 (STS-B), arXiv:1910.10683."""

    config: NumberToText
    kind = LABEL_KINDS[Regression]

    def word(self, label: float) -> str:
        """The nearest step, with as many digits as the step has: 3.75 is "3.8" in steps of 0.2."""
        digits = len(str(self.config.step).partition(".")[2].rstrip("0")) or 1
        return f"{round(label / self.config.step) * self.config.step:.{digits}f}"

    def answer(self, text: str) -> Answer:
        """The number that was written; `NO_NUMBER` for any other text."""
        found = parse_finite(text)
        return Answer(NO_NUMBER, None, {"text": text}) if found is None else Answer(found)
