"""A text for a text: translation, summarization, whatever else has an input and a target; and distilling step by
step, where the rationale of an answer is a second target, which costs nothing at inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from saucier import config as c
from saucier.objectives.token_ids import IGNORED
from saucier.tasks.encoded_examples import EncodedExamples, Ragged
from saucier.tasks.examples import Cells, Column, Example, Tally, read_cells, read_each, requested_columns
from saucier.tasks.task import Encoding
from saucier.tasks.written.definitions import StepByStep, Summarization, TextToText, Translation, Written
from saucier.tasks.written.prompts import Prompt, PromptResponse, between_texts, encode_responses
from saucier.tasks.written.task import WritingTask

if TYPE_CHECKING:
    from saucier.objectives.prediction import Prediction
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns

INPUT = Column("input", ("input", "source", "prompt", "question", "text"))
TARGET = Column("target", ("target", "output", "completion", "answer", "label"))
SOURCE = Column("source", ("source", "src", "input"))
TRANSLATION = Column("target", ("target", "tgt", "translation", "output"))
DOCUMENT = Column("document", ("document", "dialogue", "article", "text", "source", "input"))
SUMMARY = Column("summary", ("summary", "summaries", "highlights", "target", "headline", "title"))
COLUMNS: dict[type, tuple[Column, Column]] = {TextToText: (INPUT, TARGET), Translation: (SOURCE, TRANSLATION),
                                              Summarization: (DOCUMENT, SUMMARY)}
"""The column of what is read, and that of what is written."""


@dataclass(frozen=True, slots=True)
class WrittenText(Example):
    """A text, and what is to be written for it."""

    text: str
    references: tuple[str, ...]
    """All that is right; none where it is not known."""
    rationale: str | None = None
    """Why, where that is learned too."""

    @property
    def texts(self) -> tuple[str, ...]:
        """What is read."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class TextToTextTask(WritingTask):
    """A text for each text."""

    config: TextToText | Translation | Summarization | StepByStep

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[WrittenText]:
        """Yield texts with their targets. Several targets of a row are all right; each is learned."""
        columns = COLUMNS[type(self.config)]

        def read(row: Cells) -> WrittenText:
            return WrittenText(row.example.place, row.example.name, row.text(columns[0].role),
                               read_references(row, columns[1].role) if labelled else ())

        named = find_named_columns(self.config, source)
        return read_each(read_cells(source, columns if labelled else columns[:1], named), read, source)

    def prompt(self, example: WrittenText, encoding: Encoding) -> Prompt:
        """The text after its prefix; a decoder also reads what is between text and answer."""
        language = self.config.source_language if isinstance(self.config, Translation) else None
        return Prompt(self.config.prefix, example.text, between_texts(self.config, encoding.body), language=language)

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

    def from_texts(self, parts: tuple[str, ...], example: Example) -> WrittenText:
        """A text from the command line."""
        return WrittenText(example.place, example.name, parts[0], ())


def find_named_columns(config: Written, source: SourceFile) -> dict[str, str | None]:
    """Return the columns that the settings name; where no name is usual, one or two columns are taken in order."""
    columns, known = COLUMNS[type(config)], list_columns(source)
    requested = requested_columns(config, columns)
    usual = any(name in column.usual for column in columns for name in known)
    if usual or len(known) > len(columns) or any(requested.values()):
        return requested
    return dict(zip(requested, known, strict=False))


def read_references(row: Cells, role: str) -> tuple[str, ...]:
    """Read a text, or a list of texts. Raises `InputError` for anything else."""
    value = row.values.get(role)
    if not isinstance(value, list):
        return (row.text(role),)
    if not value or not all(isinstance(one, str) and one.strip() for one in value):
        raise row.fault(role, f"the {role} is a list that holds no text, or not texts alone",
                        "fill it, or leave the row out")
    return tuple(value)


RATIONALE = Column("rationale", ("rationale", "explanation", "reason", "steps", "reasoning"))
RATIONALE_LABELS = "rationale_labels"
"""The targets of rows that ask for reasons, in the batch."""


@dataclass(frozen=True, slots=True)
class StepByStepTask(TextToTextTask):
    """An answer, with its reasons learned in addition to it."""

    config: StepByStep

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[WrittenText]:
        """Yield texts with answers and reasons; reasons are needed only where they are learned."""
        reasons = replace(RATIONALE, needed=self.config.weight > 0)
        requested = requested_columns(self.config, (INPUT, TARGET, RATIONALE))

        def read(row: Cells) -> WrittenText:
            why = row.text("rationale") if labelled and "rationale" in row.values and self.config.weight else None
            return WrittenText(row.example.place, row.example.name, row.text("input"),
                               (row.word("target"),) if labelled else (), why)

        return read_each(read_cells(source, (INPUT, TARGET, reasons) if labelled else (INPUT,), requested), read,
                         source)

    def request(self, example: WrittenText, prefix: str, encoding: Encoding) -> Prompt:
        """The text after the prefix that asks for the answer or the reasons."""
        return Prompt(prefix + self.config.prefix, example.text, between_texts(self.config, encoding.body))

    def prompt(self, example: WrittenText, encoding: Encoding) -> Prompt:
        """The question for the answer."""
        return self.request(example, self.config.label_prefix, encoding)

    def target_texts(self, example: WrittenText) -> tuple[str, ...]:
        """The answer, and the reasons where they are learned."""
        return example.references if example.rationale is None else (*example.references, example.rationale)

    def surrounding_texts(self, example: WrittenText, body: c.Transformer) -> tuple[str, ...]:
        """The prefix, and the one that asks for the answer or the reasons."""
        second = () if example.rationale is None else (self.config.rationale_prefix,)
        return (*WritingTask.surrounding_texts(self, example, body), self.config.label_prefix, *second)

    def encode(self, examples: Sequence[WrittenText], encoding: Encoding) -> EncodedExamples:
        """Lay out answers, and after them the reasons, whose targets are separate."""
        first = list(self.prompt_responses(examples, encoding))
        second = [PromptResponse(self.request(one, self.config.rationale_prefix, encoding), one.rationale, number)
                  for number, one in enumerate(examples) if one.rationale is not None]
        encoded = encode_responses([*first, *second], encoding, self.config.writing.tokens)
        return separate_rationales(encoded, len(first)) if second else encoded

    @property
    def objective(self) -> Prediction:
        """The tokens of the answers, and λ times those of the reasons, each a mean of its own."""
        from saucier.objectives.prediction import Prediction, SecondTokens

        reasons = (SecondTokens(RATIONALE_LABELS, "rationale", self.config.weight),) if self.config.weight else ()
        return Prediction(auxiliary=reasons)


def separate_rationales(encoded: EncodedExamples, answers: int) -> EncodedExamples:
    """Move the targets of all units from number `answers` on to a place of their own."""
    labels = encoded.sequences["labels"]
    inside = np.arange(len(labels.values)) < labels.offsets[answers]
    separated = {"labels": replace(labels, values=np.where(inside, labels.values, IGNORED)),
                 RATIONALE_LABELS: Ragged(np.where(inside, IGNORED, labels.values), labels.offsets, IGNORED)}
    return replace(encoded, sequences={**encoded.sequences, **separated})
