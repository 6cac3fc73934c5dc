"""The folder of a fine-tuning, its task file, and the model in it that answers for new rows or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from saucier import config as c
from saucier.checkpoints.hub import TUNED, resolve_folder
from saucier.checkpoints.layout import label_names
from saucier.config.registry import name_packages, require_packages
from saucier.devices import choose_autocast_dtype
from saucier.errors import InputError
from saucier.files import is_folder, read_object, write_json
from saucier.folders.kinds import find_model_folder
from saucier.folders.load import check_tokenizer_fits, load
from saucier.jobs.finetuning.data import read_examples
from saucier.jobs.finetuning.settings import LONGEST_ROW, Finetuning, read_finetuning
from saucier.jobs.run.folder import JobKind
from saucier.model import Transformer
from saucier.opened import OpenModel, load_model_tokenizer, room
from saucier.result import Result
from saucier.tasks.build import build_task
from saucier.tasks.definitions import (
    Classification,
    CosineScore,
    Embedding,
    MultipleChoice,
    QuestionAnswering,
    Regression,
    Tagging,
    TaskConfig,
)
from saucier.tasks.examples import Example, Place, Tally
from saucier.tasks.task import Answer, Encoding, Predictor, Task

TASK_FILE = "task.json"


@dataclass(frozen=True, slots=True)
class TaskFolder(Result):
    """The paths of one fine-tuning."""

    path: Path

    def view(self) -> str:
        """Say where it is."""
        return str(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the folder and, of a finished one, its scores."""
        return {"folder": str(self.path), "scores": read_object(self.scores) if self.is_finished else None}

    @property
    def model(self) -> Path:
        """The finished model with its tokenizer and task, ready to be used anywhere."""
        return self.path / "model"

    @property
    def scores(self) -> Path:
        """What was measured; the last file that is written."""
        return self.path / "scores.json"

    def predictions(self, split: str) -> Path:
        """The model's answers on a split."""
        return self.path / "predictions" / f"{split}.jsonl"

    @property
    def is_finished(self) -> bool:
        """Whether it was measured, which is done last."""
        return self.scores.is_file()


def deciding_settings(settings: Finetuning, whole: bool = False) -> dict[str, Any]:
    """Return what decides the outcome of a fine-tuning; the kind of task first, as another kind has other keys."""
    decides = settings.model_dump(mode="json", exclude={"name": True, "training": {"reporters"}})
    if not whole:  # they measure what is learned
        del decides["metrics"]
    return {"task.kind": settings.task.kind} | decides


FINETUNING = JobKind(
    settings=TUNED, last="scores.json",
    header="# This fine-tuning, with every value. `saucier finetune FOLDER` goes on with it.\n",
    read=read_finetuning, essential=deciding_settings, other="another fine-tuning", foreign="no fine-tuning")


def write_task(folder: Path, task: TaskConfig, length: int) -> None:
    """Write next to a model what it was trained to do, so that it can answer."""
    values = task.model_dump(mode="json")
    write_json(folder / TASK_FILE, {"task": values, "length": length, **name_packages(values)})


def copy_task(folder: Path, target: Path, most: int | None = None) -> None:
    """Write what a model was trained to do next to what was made of it; `most`: tokens that this reads."""
    saved = read_task(folder)
    if saved is not None:
        write_task(target, saved[0], saved[1] if most is None else min(saved[1], most))


def read_task_labels(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's outputs, from the task that it was trained on; none where no task names them."""
    saved = read_task(folder)
    return () if saved is None else build_task(saved[0]).required_head.labels


def read_task(folder: Path) -> tuple[TaskConfig, int] | None:
    """Read what a model was trained to do, and its longest row; None where that is not known."""
    path = folder / TASK_FILE
    if not path.is_file():
        return None
    document = read_object(path)
    require_packages(document, str(path))
    try:
        task: TaskConfig = TypeAdapter(TaskConfig).validate_python(document.get("task"))
        return task, int(document["length"])
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a task: {str(error).splitlines()[0]}", where=str(path),
                         remedy="fine-tune again into a new folder") from error


PREDICTION_BATCH = 32
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """The input, and what the model predicts."""

    task: Task
    examples: Sequence[Any]
    answers: Sequence[Answer]
    cut: int
    """Rows that were too long and were cut."""
    counted: Tally = field(default_factory=Tally)
    """What was skipped, dropped or repaired in the files."""


def answer_examples(opened: OpenModel, examples: Sequence[Any]) -> TaskAnswers:
    """Answer for some examples of the task that a model was opened for (see `open_task`)."""
    assert opened.task is not None and opened.length is not None, "open_task knows them"
    encoding = Encoding(opened.tokenizer, opened.length, opened.model.config,
                        opened.model.provenance.generation.get("decoder_start_token_id"))
    encoded = opened.task.encode(examples, encoding)
    predictor = Predictor(opened.model, encoding, PREDICTION_BATCH, choose_autocast_dtype("auto", opened.device)[0])
    answers = opened.task.predict(predictor, examples, encoded)
    return TaskAnswers(opened.task, examples, answers, encoded.truncation.rows)


def open_task(path: Path | str, base: str | None = None) -> OpenModel:
    """Open a fine-tuning's folder, its model, or a model that was published for a task.

    `base`: of an adapter, instead of the one that it names. Raises `InputError` for a model that answers nothing of the
    kind.
    """
    folder = TaskFolder(Path(path)).model if is_folder(TaskFolder(Path(path)).model) else path
    model, tokenizer = load(folder, dtype="float32", base=base), load_model_tokenizer(folder, base)
    check_tokenizer_fits(model, tokenizer, str(path))
    saved = read_task(find_model_folder(resolve_folder(folder)))
    config, length = saved or (task_of_published(model, str(path)),
                               room(model.config, LONGEST_ROW, tokenizer.handling.max_length))
    return OpenModel(Path(path), model, tokenizer, task=build_task(config), length=length)


def task_of_published(model: Transformer, where: str) -> TaskConfig:
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
    return label_names(model.provenance.document, count, where) or tuple(f"LABEL_{number}" for number in range(count))


def predict_answers(path: Path | str, files: Sequence[str], texts: Sequence[str] = (), *,
                    base: str | None = None) -> TaskAnswers:
    """Answer for the rows of files, and for texts. `base`: as in `open_task`.

    Raises `InputError` for a file that lacks a column, and for a task that single texts do not suit.
    """
    opened = open_task(path, base)
    tally = Tally()
    assert opened.task is not None, "open_task knows it"
    examples = read_examples(opened.task, files, labelled=False, tally=tally) if files else []
    for number, text in enumerate(texts, start=1):
        parts = tuple(part.strip() for part in text.split("|||"))  # of a pair
        examples.append(opened.task.from_texts(parts, Example(Place("command line", number), f"text {number}")))
    return replace(answer_examples(opened, examples), counted=tally)
