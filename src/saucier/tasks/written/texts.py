"""A text for a text: translation, summarization, and whatever else has an input and a target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from saucier.errors import InputError
from saucier.tasks.examples import Cells, Column, Example, Tally, cells
from saucier.tasks.task import Encoding
from saucier.tasks.written.config import Summarization, TextToText, Translation
from saucier.tasks.written.prompts import Prompt, two_sides
from saucier.tasks.written.writing import WritingTask
from saucier.text.sources import Source
from saucier.text.tables import columns_of

INPUT = Column("input", ("input", "source", "prompt", "question", "text"))
TARGET = Column("target", ("target", "output", "completion", "answer", "label"))
SOURCE = Column("source", ("source", "src", "input"))
TRANSLATION = Column("target", ("target", "tgt", "translation", "output"))
DOCUMENT = Column("document", ("document", "dialogue", "article", "text", "source", "input"))
SUMMARY = Column("summary", ("summary", "summaries", "highlights", "target", "headline", "title"))


@dataclass(frozen=True, slots=True)
class WrittenText(Example):
    """A text, and what is to be written for it."""

    text: str
    references: tuple[str, ...]
    """All that is right; none where it is not known."""


@dataclass(frozen=True, slots=True)
class Texts(WritingTask[WrittenText]):
    """A text for each text."""

    config: TextToText | Translation | Summarization

    def read(self, source: Source, tally: Tally, *, labelled: bool) -> Iterator[WrittenText]:
        """Yield texts with their targets. Several targets of a row are all right; each is learned."""
        wanted = columns(self.config)
        asked = named(self.config, source)
        for row in cells(source, wanted if labelled else wanted[:1], asked):
            yield WrittenText(row.example.place, row.example.name, row.text(wanted[0].role),
                              references(row, wanted[1].role) if labelled else ())

    def prompt(self, example: WrittenText, encoding: Encoding) -> Prompt:
        """The text behind its prefix; a decoder also reads what stands between."""
        language = self.config.source_language if isinstance(self.config, Translation) else None
        return Prompt(self.config.prefix, example.text, "" if two_sides(encoding.body) else self.config.between,
                      language=language)

    def responses(self, example: WrittenText) -> Sequence[str]:
        """The references."""
        return example.references

    @property
    def language(self) -> str | None:
        """The language that is translated into."""
        return self.config.target_language if isinstance(self.config, Translation) else None

    @property
    def scored_as(self) -> str:
        """Summaries by ROUGE first, others by BLEU."""
        return "summaries" if isinstance(self.config, Summarization) else "texts"

    def texts(self, example: WrittenText) -> tuple[str, ...]:
        """What is read."""
        return (example.text,)

    def typed(self, parts: tuple[str, ...], example: Example) -> WrittenText:
        """A text from the command line."""
        return WrittenText(example.place, example.name, parts[0], ())


def columns(config: TextToText | Translation | Summarization) -> tuple[Column, Column]:
    """Return the column of what is read, and that of what is written."""
    match config:
        case TextToText():
            return INPUT, TARGET
        case Translation():
            return SOURCE, TRANSLATION
        case Summarization():
            return DOCUMENT, SUMMARY


def named(config: TextToText | Translation | Summarization, source: Source) -> Mapping[str, str | None]:
    """Return the columns that the settings name; where no name is usual, one or two columns are taken in order."""
    roles = [column.role for column in columns(config)]
    asked = {role: getattr(config, role) for role in roles}
    known = columns_of(source)
    usual = any(name in column.usual for column in columns(config) for name in known)
    if usual or len(known) > len(roles) or any(asked.values()):
        return asked
    return dict(zip(roles, known, strict=False))


def references(row: Cells, role: str) -> tuple[str, ...]:
    """Read a text, or a list of texts. Raises `InputError` for anything else."""
    value = row.values.get(role)
    if not isinstance(value, list):
        return (row.text(role),)
    if not value or not all(isinstance(one, str) and one.strip() for one in value):
        raise InputError(f"the {role} is a list that holds no text, or not texts alone", where=str(row.example.place),
                         remedy="fill it, or leave the row out")
    return tuple(value)
