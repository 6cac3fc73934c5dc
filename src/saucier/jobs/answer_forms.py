"""What an `App` answers: small objects, one for each kind of answer; `str` gives what matters most."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from saucier.tasks.tag_schemes import read_lenient


@dataclass(frozen=True, slots=True)
class Label:
    """A class of a text, or one of several choices."""

    label: str
    score: float
    """Its probability."""
    scores: Mapping[str, float]
    """The probabilities of the likeliest classes."""

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Labels:
    """All labels of a text that are likelier than not."""

    labels: tuple[str, ...]
    scores: Mapping[str, float]
    """The probability of each."""

    def __str__(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, such as a score or the similarity of two texts."""

    value: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text that has a label."""

    label: str
    text: str
    start: int
    """The first character."""
    end: int
    """The character after the last."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of the words of a text, and the entities that they mark."""

    tags: tuple[str, ...]
    spans: tuple[Span, ...]
    """Where the tags mark no entities, the words."""
    score: float | None
    """The probability of the least sure tag."""


@dataclass(frozen=True, slots=True)
class FoundText:
    """A piece of a text that answers a question; empty where there is no answer."""

    text: str
    score: float | None
    scores: Mapping[str, float]
    """The probabilities of the best pieces."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class FilledText:
    """A text whose masks are filled in."""

    text: str
    """With the likeliest token in the place of each mask."""
    fills: tuple[Mapping[str, float], ...]
    """The likeliest tokens of each mask, with their probabilities."""

    def __str__(self) -> str:
        return self.text


def find_spans(text: str, tags: Sequence[str], *, entities: bool) -> tuple[Span, ...]:
    """Return the entities that the tags of a text's words mark, or else each word with its tag."""
    words = list(re.finditer(r"\S+", text))
    found = [(one.type, one.first, one.last) for one in read_lenient(tags)] if entities else \
        [(tag, place, place) for place, tag in enumerate(tags)]
    return tuple(Span(label, text[words[first].start():words[last].end()], words[first].start(), words[last].end())
                 for label, first, last in found)
