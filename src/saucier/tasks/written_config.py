"""Tasks whose answer is a text, as data: what is read, what stands around it, how the answer is written. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.tasks.columns import ColumnName


class Greedy(Config):
    """Always the likeliest token."""

    kind: Literal["greedy"] = "greedy"


class Beams(Config):
    """The likeliest of several texts that are written side by side."""

    kind: Literal["beams"] = "beams"
    beams: int = Field(default=4, gt=1)
    """Texts that are kept."""
    length_penalty: float = 1.0
    """A text scores its log probability divided by its tokens to this power."""


class Sampling(Config):
    """Tokens are drawn from the model's distribution."""

    kind: Literal["sampling"] = "sampling"
    temperature: float = Field(default=1.0, gt=0)
    """Scores are divided by it."""
    top_k: int | None = Field(default=None, gt=0)
    """From the k likeliest tokens only; None: from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """From the smallest set of tokens that holds this probability."""
    seed: int = Field(default=0, ge=0)
    """Draws them."""


class Writing(Config):
    """How long a text may be, and how it is written."""

    search: Annotated[Greedy | Beams | Sampling, Field(discriminator="kind")] = Greedy()
    """How the next token is chosen."""
    tokens: int | None = Field(default=None, gt=0)
    """The most tokens of what is written, in training too; None: as many as the longest of the training file has."""
    batch: int = Field(default=32, gt=0)
    """Answers that are written at a time; with sampling, another number draws other texts."""
    repetition_penalty: float = Field(default=1.0, gt=0)
    """Scores of tokens that stand there already are divided by it."""
    no_repeat_ngram: int = Field(default=0, ge=0)
    """No n-gram of this size twice; 0: no limit."""


class Written(Config):
    """What all tasks share that write a text for a text."""

    prefix: str = ""
    """Stands before what is read, such as `summarize: `. Source: Raffel et al. 2020, §2.4, arXiv:1910.10683."""
    between: str = "\n"
    """Stands between what is read and what is written where a decoder alone does both; an encoder does not read it."""
    writing: Writing = Writing()
    """How the answer is written."""


class TextToText(Written):
    """A text for a text. Source: Raffel et al. 2020, §2.4, arXiv:1910.10683."""

    kind: Literal["text_to_text"] = "text_to_text"
    input: ColumnName = None
    """The column of what is read."""
    target: ColumnName = None
    """The column of what is written: a text, or a list of texts that are all right."""


class Translation(Written):
    """A text in another language. Source: Sutskever et al. 2014, arXiv:1409.3215."""

    kind: Literal["translation"] = "translation"
    source: ColumnName = None
    """The column of what is translated; None: found by name, or the first of two columns."""
    target: ColumnName = None
    """The column of its translation; None: found by name, or the second of two columns."""


class Summarization(Written):
    """What a document says, in few words. Source: Rush et al. 2015, arXiv:1509.00685."""

    kind: Literal["summarization"] = "summarization"
    between: str = "\nTL;DR:\n"
    """As in every written task. Source: Radford et al. 2019, §3.6, where these words ask for a summary."""
    document: ColumnName = None
    """The column of the document."""
    summary: ColumnName = None
    """The column of its summary: a text, or a list of texts that are all right."""
