"""`ask`: a model that was fine-tuned (or published for a task) answers for new rows or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saucier import config as c
from saucier.checkpoints.published import label_names
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.finetuning.data import read_examples
from saucier.finetuning.folder import TaskFolder, read_task
from saucier.finetuning.job import LONGEST
from saucier.hub import folder_of
from saucier.loading import load, model_folder_of
from saucier.model import Transformer
from saucier.recipes.coherence import learned_length
from saucier.runs.opened import tokenizer_of
from saucier.spelling import check_fits
from saucier.tasks.build import build_task
from saucier.tasks.config import Classification, Regression, Tagging, TaskConfig
from saucier.tasks.embedding_config import CosineScore, Embedding
from saucier.tasks.examples import Example, Place, Tally
from saucier.tasks.questions_config import MultipleChoice, QuestionAnswering
from saucier.tasks.task import Answer, Encoding, Reading, Task
from saucier.text.tokenizer import Tokenizer
from saucier.training.precision import choose_dtype

BATCH = 32
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and what the model says."""

    task: Task[Any]
    examples: Sequence[Any]
    answers: Sequence[Answer]
    cut: int
    """Rows that were too long and were cut."""
    counted: Tally = field(default_factory=Tally)
    """What was skipped, dropped or repaired in the files."""


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A model with what it was trained to do."""

    model: Transformer
    tokenizer: Tokenizer
    task: Task[Any]
    length: int

    def ask(self, examples: Sequence[Any]) -> Asked:
        """Answer for some examples."""
        encoding = Encoding(self.tokenizer, self.length, self.model.config,
                            self.model.generation.get("decoder_start_token_id"))
        sheet = self.task.sheet(examples, encoding)
        dtype = choose_dtype("auto", next(self.model.parameters()).device)[0]
        answers = self.task.answers(Reading(self.model, encoding, BATCH, dtype), examples, sheet)
        return Asked(self.task, examples, answers, sheet.cut.rows)


def open_task(path: Path | str, base: str | None = None) -> TaskModel:
    """Open a fine-tuning's folder, its model, or a model that was published for a task.

    `base`: of an adapter, instead of the one that it names. Raises `InputError` for a model that answers nothing of the
    kind.
    """
    folder = TaskFolder(Path(path)).model if is_folder(TaskFolder(Path(path)).model) else path
    model, tokenizer = load(folder, dtype="float32", base=base), tokenizer_of(folder, base)
    check_fits(model, tokenizer, str(path))
    saved = read_task(model_folder_of(folder_of(folder)))
    room = [one for one in (learned_length(model.config), tokenizer.handling.max_length, LONGEST) if one is not None]
    config, length = saved if saved is not None else (published_task(model, str(path)), min(room))
    return TaskModel(model, tokenizer, build_task(config), length)


def published_task(model: Transformer, where: str) -> TaskConfig:
    """Return the task that a published head is for. Raises `InputError` where that is not to be seen."""
    match model.config.head:
        case c.ClassificationHead(classes=1):
            return Regression()
        case c.ClassificationHead(classes=count):
            return Classification(labels=output_names(model, count, where))
        case c.TokenHead(classes=count):
            return Tagging(labels=output_names(model, count, where))
        case c.EmbeddingHead():
            return Embedding(learns=CosineScore(low=0.0, high=1.0))
        case c.SpanHead():
            return QuestionAnswering()
        case c.ChoiceHead():
            return MultipleChoice()
        case _:
            raise InputError("this model has no head for a task that `predict` knows", where=where,
                             remedy="fine-tune it first: saucier finetune TASK --model ... --data ...")


def output_names(model: Transformer, count: int, where: str) -> tuple[str, ...]:
    """Return the names of a published head's outputs; numbers where it has none."""
    return label_names(model.published, count, where) or tuple(f"LABEL_{number}" for number in range(count))


def ask(path: Path | str, files: Sequence[str], texts: Sequence[str] = (), *, base: str | None = None) -> Asked:
    """Answer for the rows of files, and for texts. `base`: as in `open_task`.

    Raises `InputError` for a file that lacks a column, and for a task that single texts do not suit.
    """
    opened = open_task(path, base)
    tally = Tally()
    examples = read_examples(opened.task, files, labelled=False, tally=tally) if files else []
    asked = [*examples, *(typed(opened.task, text, number) for number, text in enumerate(texts, start=1))]
    return replace(opened.ask(asked), counted=tally)


def typed(task: Task[Any], text: str, number: int) -> Example:
    """Make an example of a text from the command line; `|||` stands between two texts."""
    place = Place("command line", number)
    found: Example = task.typed(tuple(part.strip() for part in text.split("|||")), Example(place, f"text {number}"))
    return found
