"""Every kind of task: its settings, what builds it, and the simple methods that its model is compared with.

A new task is a class of settings, a class with the members of `Task`, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from saucier.config.registry import find_builder
from saucier.tasks import simple_baselines as simple
from saucier.tasks.classification import TextTask
from saucier.tasks.definitions import (
    Classification,
    Embedding,
    InverseCloze,
    ManyLabels,
    MultipleChoice,
    OpenQuestionAnswering,
    QuestionAnswering,
    Ranking,
    Regression,
    Tagging,
    TaskConfig,
)
from saucier.tasks.inverse_cloze import InverseClozeTask
from saucier.tasks.masked_retrieval import MaskedRetrievalTask
from saucier.tasks.multiple_choice import MultipleChoiceTask
from saucier.tasks.open_question_answering import OpenQuestionAnsweringTask
from saucier.tasks.question_answering import QuestionAnsweringTask
from saucier.tasks.retrieval_definitions import MaskedRetrieval
from saucier.tasks.tagging import TaggingTask
from saucier.tasks.task import Task
from saucier.tasks.text_embedding import EmbeddingTask
from saucier.tasks.written.definitions import (
    Instruction,
    LabelToText,
    Mixture,
    NumberToText,
    RetrievalAugmented,
    StepByStep,
    Summarization,
    TextToText,
    Translation,
)
from saucier.tasks.written.instruction import InstructionTask
from saucier.tasks.written.retrieval_augmented import RetrievalAugmentedTask
from saucier.tasks.written.task_mixture import MixtureTask
from saucier.tasks.written.text_to_text import StepByStepTask, TextToTextTask
from saucier.tasks.written.verbalized_labels import LabelToTextTask, NumberToTextTask


@dataclass(frozen=True, slots=True)
class TaskKind:
    """What belongs to one class of settings."""

    build: Callable[[Any], Task]
    baselines: tuple[simple.Method, ...] = ()
    """The weakest first."""


def build_mixture(config: Mixture) -> MixtureTask:
    """Return a mixture with its tasks."""
    built: Any = {name: build_task(one.task) for name, one in config.tasks.items()}
    each: Any = build_task(config.each)
    return MixtureTask(built, each, config)


TASKS: dict[type, TaskKind] = {
    Classification: TaskKind(TextTask, (simple.majority_class, simple.tfidf_classes)),
    ManyLabels: TaskKind(TextTask),
    Regression: TaskKind(TextTask, (simple.mean_number, simple.tfidf_numbers)),
    Ranking: TaskKind(TextTask, (simple.query_overlap,)),
    Tagging: TaskKind(TaggingTask, (simple.commonest_tags,)),
    Embedding: TaskKind(EmbeddingTask, (simple.tfidf_vectors,)),
    InverseCloze: TaskKind(InverseClozeTask),
    MaskedRetrieval: TaskKind(MaskedRetrievalTask),
    OpenQuestionAnswering: TaskKind(OpenQuestionAnsweringTask),
    QuestionAnswering: TaskKind(QuestionAnsweringTask, (simple.most_similar_sentence,)),
    MultipleChoice: TaskKind(MultipleChoiceTask, (simple.majority_class, simple.most_similar_choice)),
    TextToText: TaskKind(TextToTextTask, (simple.copy_text,)),
    Translation: TaskKind(TextToTextTask, (simple.copy_text,)),
    Summarization: TaskKind(TextToTextTask, (
        simple.one_for_all, lambda task, train, test: simple.lead_sentences(test, 1),
        lambda task, train, test: simple.lead_sentences(test, 3))),
    LabelToText: TaskKind(LabelToTextTask, (simple.majority_class, simple.tfidf_classes)),
    NumberToText: TaskKind(NumberToTextTask, (simple.mean_number, simple.tfidf_numbers)),
    Instruction: TaskKind(InstructionTask),
    StepByStep: TaskKind(StepByStepTask),
    Mixture: TaskKind(build_mixture),
    RetrievalAugmented: TaskKind(RetrievalAugmentedTask),
}


def build_task(config: TaskConfig) -> Task:
    """Return the task that a config describes."""
    return (TASKS.get(type(config)) or TaskKind(find_builder(config))).build(config)


def list_baselines(task: Task) -> tuple[simple.Method, ...]:
    """Return the simple methods that fit a task; none for one from outside."""
    return TASKS[type(task.config)].baselines if type(task.config) in TASKS else ()


def predict_simple_baselines(task: Task, train: Sequence[Any], test: Sequence[Any]) -> list[simple.SimpleBaseline]:
    """Return the predictions of the simple methods that fit a task, the weakest first."""
    return [method(task, train, test) for method in list_baselines(task)
            if method not in simple.WITH_EXTRA or simple.has_extra()]


def missing_extra(task: Task) -> str | None:
    """Say what cannot be compared because scikit-learn is missing; None where nothing is."""
    if {*list_baselines(task)} & {*simple.WITH_EXTRA} and not simple.has_extra():
        return f"no TF-IDF baseline: scikit-learn is not installed (pip install 'saucier[{simple.EXTRA}]')"
    return None
