"""From a task's config to the task."""

from __future__ import annotations

from typing import Any

from saucier.tasks.classification import Classes, LabelSets, Numbers
from saucier.tasks.config import Classification, ManyLabels, Ranking, Regression, Tagging, TaskConfig
from saucier.tasks.embedding import TextVectors
from saucier.tasks.embedding_config import Embedding
from saucier.tasks.multiple_choice import Choices
from saucier.tasks.question_answering import SpanAnswers
from saucier.tasks.questions_config import MultipleChoice, QuestionAnswering
from saucier.tasks.ranking import Relevance
from saucier.tasks.tagging import WordTags
from saucier.tasks.task import Task
from saucier.tasks.written.build import written_task


def build_task(config: TaskConfig) -> Task[Any]:
    """Return the task that a config describes."""
    match config:
        case Classification():
            return Classes(config)
        case ManyLabels():
            return LabelSets(config)
        case Regression():
            return Numbers(config)
        case Ranking():
            return Relevance(config)
        case Tagging():
            return WordTags(config)
        case Embedding():
            return TextVectors(config)
        case QuestionAnswering():
            return SpanAnswers(config)
        case MultipleChoice():
            return Choices(config)
        case _:
            return written_task(config)
