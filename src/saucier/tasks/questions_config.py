"""Tasks about questions as data: an answer that stands in a text, and one of several choices. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.tasks.columns import ColumnName
from saucier.tasks.forms_config import ChoiceForm, TokenizerFrame


class QuestionAnswering(Config):
    """The piece of a text that answers a question, or none. Source: Devlin et al. 2019, §4.2–4.3, arXiv:1810.04805."""

    kind: Literal["question_answering"] = "question_answering"
    question: ColumnName = None
    """The column of the question, in files that are not in SQuAD's form; None: found by its usual names."""
    context: ColumnName = None
    """The column of the text, likewise."""
    answers: ColumnName = None
    """The column of the answers, likewise."""
    misplaced: Literal["refuse", "drop"] = "refuse"
    """What happens to answers that do not stand in their text."""
    no_answer: float | None = None
    """By how much (in logits) "no answer" must beat the best answer to be told; None: something is always answered,
    unless the training file has questions without an answer, which makes it 0."""
    stride: int = Field(default=128, gt=0)
    """Each window of a long text begins so many tokens behind the one before."""
    question_length: int = Field(default=64, gt=0)
    """Most tokens of a question; longer ones are cut, and counted."""
    longest_answer: int = Field(default=30, gt=0)
    """Most tokens of an answer that is told."""
    best: int = Field(default=5, gt=0)
    """Answers that are told with their probabilities, the best first."""


class MultipleChoice(Config):
    """One of several answers to a question. Source: Radford et al. 2018, §3.3; Devlin et al. 2019, §4.4 (SWAG)."""

    kind: Literal["multiple_choice"] = "multiple_choice"
    question: ColumnName = None
    """The column of the question; None: found by its usual names, in files that have one."""
    context: ColumnName = None
    """The column of the text that the question is about, likewise."""
    choices: ColumnName = None
    """The column of the list of choices; None: found, or else a column for each choice, such as `ending0`."""
    answer: ColumnName = None
    """The column of the right one: its number from 0, its letter, its name or its text."""
    form: ChoiceForm = TokenizerFrame()
    """How a question with a choice becomes a row."""
    labels: tuple[str, ...] = ()
    """What the choices are called, in order; none: as in the training file."""
