"""From a task's config to the task."""

from __future__ import annotations

from typing import Any

from saucier.tasks.classification import ClassificationTask, MultiLabelTask, RankingTask, RegressionTask
from saucier.tasks.definitions import (
    Classification,
    Embedding,
    ManyLabels,
    MultipleChoice,
    QuestionAnswering,
    Ranking,
    Regression,
    Tagging,
    TaskConfig,
)
from saucier.tasks.multiple_choice import MultipleChoiceTask
from saucier.tasks.question_answering import QuestionAnsweringTask
from saucier.tasks.tagging import TaggingTask
from saucier.tasks.task import Task
from saucier.tasks.text_embedding import EmbeddingTask
from saucier.tasks.written.definitions import (
    Instruction,
    LabelToText,
    Mixture,
    NumberToText,
    StepByStep,
    Summarization,
    TextToText,
    Translation,
    WrittenTask,
)
from saucier.tasks.written.instruction import InstructionTask
from saucier.tasks.written.task import WritingTask
from saucier.tasks.written.task_mixture import MixtureTask
from saucier.tasks.written.text_to_text import StepByStepTask, TextToTextTask
from saucier.tasks.written.verbalized_labels import LabelToTextTask, NumberToTextTask


def written_task(config: WrittenTask) -> WritingTask[Any]:
    """Return the task that a config describes."""
    match config:
        case TextToText() | Translation() | Summarization():
            return TextToTextTask(config)
        case LabelToText():
            return LabelToTextTask(config)
        case NumberToText():
            return NumberToTextTask(config)
        case Instruction():
            return InstructionTask(config)
        case StepByStep():
            return StepByStepTask(config)
        case Mixture():
            return MixtureTask({name: written_task(one.task) for name, one in config.tasks.items()},
                               written_task(config.each), config)


def build_task(config: TaskConfig) -> Task[Any]:
    """Return the task that a config describes."""
    match config:
        case Classification():
            return ClassificationTask(config)
        case ManyLabels():
            return MultiLabelTask(config)
        case Regression():
            return RegressionTask(config)
        case Ranking():
            return RankingTask(config)
        case Tagging():
            return TaggingTask(config)
        case Embedding():
            return EmbeddingTask(config)
        case QuestionAnswering():
            return QuestionAnsweringTask(config)
        case MultipleChoice():
            return MultipleChoiceTask(config)
        case _:
            return written_task(config)
