"""The answers of a model for the rows of any file, or for texts: one for each, next to all that the row held.

Files, columns and rows are read and checked before the model is, and without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier import config as c
from saucier.checkpoints.hub import find_finetuned_model, is_hub_id, resolve_folder
from saucier.errors import InputError
from saucier.files import is_folder
from saucier.jobs.finetuning.data import LONGEST_ROW, read_examples, with_columns
from saucier.jobs.finetuning.passages import attach_trained
from saucier.jobs.finetuning.task_folder import TaskFolder, read_task
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
from saucier.tasks.examples import Example, Place, Tally, make_faults_error, read_each
from saucier.tasks.file_formats import whole_document
from saucier.tasks.prediction_files import is_conll
from saucier.tasks.tagging import COLUMN_FILES
from saucier.tasks.task import Answer, Encoding, Predictor, Task
from saucier.tasks.written.definitions import TextToText
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import AS_GUESSED, SourceFile, find_sources, read_lines
from saucier.text.reading.tables import describe_form, list_columns, read_rows

if TYPE_CHECKING:
    from saucier.model import Transformer
    from saucier.opened import OpenModel

PREDICTION_BATCH = 32
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How the rows of files are read."""

    read: ReadOptions = AS_GUESSED
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by what the task calls them, where they have other names than in training."""
    drop: bool = False
    """Whether rows that cannot be used are left out, not refused."""


AS_TRAINED = RowOptions()


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be answered for."""

    examples: list[Any] = field(default_factory=list)
    columns: list[Mapping[str, Any]] = field(default_factory=list)
    """All that the row of each example holds; nothing where it is no row of a table."""
    counted: Tally = field(default_factory=Tally)
    """What was skipped, dropped or repaired in the files."""
    faults: list[InputError] = field(default_factory=list)
    """What is wrong with rows that are left out."""
    forms: list[str] = field(default_factory=list)
    """How files are read, where that is not what their names promise."""


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """The input, and what the model predicts."""

    task: Task
    examples: Sequence[Any]
    answers: Sequence[Answer]
    cut: int
    """Rows that were too long and were cut."""
    request: Request = field(default_factory=Request)
    """How the examples were read."""


def read_request(task: Task, files: Sequence[str], texts: Sequence[str] = (),
                 options: RowOptions = AS_TRAINED) -> Request:
    """Read what is to be answered for: rows of tables, lines of text files, and texts.

    Raises `InputError` for a file that lacks a column, for all rows that cannot be used unless they are to be left
    out, and for a task that single texts do not suit.
    """
    request, named = Request(), with_columns(task, options.columns)
    for source in find_sources(files, options.read):
        if lines_are_texts(task, source):
            found, columns = read_text_lines(task, source, request), dict[int, Mapping[str, Any]]()
        else:
            found = read_examples(named, [source.name], labelled=False, tally=request.counted, options=options.read,
                                  faults=request.faults)
            columns = read_columns(task, source)
        request.examples.extend(found)
        request.columns.extend(columns.get(one.place.line, {}) for one in found)
        request.forms.extend(filter(None, [describe_form(source)]))
    if request.faults and not options.drop:
        raise make_faults_error(request.faults)
    for number, text in enumerate(texts, start=1):
        request.examples.append(example_of_text(task, text, Example(Place("command line", number), f"text {number}")))
        request.columns.append({})
    return request


def example_of_text(task: Task, text: str, example: Example) -> Any:
    """Make an example of a text, or of the parts of one between |||."""
    return task.from_texts(tuple(part.strip() for part in text.split("|||")), example)


def lines_are_texts(task: Task, source: SourceFile) -> bool:
    """Whether each line of a file is a text; a file of words, with empty lines between sentences, is for a tagger."""
    return source.format == "txt" and not (task.config.kind == "tagging" and holds_words(source))


def holds_words(source: SourceFile) -> bool:
    """Whether a file has a word a line, alone or with tags."""
    return is_conll(source) or not any(len(line.split()) > 1 for _, line in read_lines(source))


EMPTY_LINES = "empty lines skipped"


def read_text_lines(task: Task, source: SourceFile, request: Request) -> list[Any]:
    """Read the lines of a text file; empty ones are counted. Raises `InputError` for a file without any other."""
    lines = [(number, line.strip()) for number, line in read_lines(source)]
    full = [(number, line) for number, line in lines if line]
    if not full:
        raise InputError("has no rows", where=source.name, remedy="leave it out")
    request.counted.update({EMPTY_LINES: len(lines) - len(full)} if len(full) < len(lines) else {})

    def read(line: tuple[int, str]) -> Any:
        place = Place(source.name, line[0])
        return example_of_text(task, line[1], Example(place, place.name))

    return list(read_each(full, read, replace(source, collect=request.faults.append)))


def read_columns(task: Task, source: SourceFile) -> dict[int, Mapping[str, Any]]:
    """Return all cells of a table by the lines of its rows; nothing where a row is not one example of the task."""
    in_columns = task.config.kind == "tagging" and source.format in COLUMN_FILES
    if in_columns or whole_document(source) is not None or "qas" in list_columns(source):
        return {}
    quiet = replace(source, collect=lambda fault: None)  # what is wrong was reported when the examples were read
    return {row.line: row.cells for row in read_rows(quiet, None)}


def answer_examples(opened: OpenModel, examples: Sequence[Any], batch: int = PREDICTION_BATCH) -> TaskAnswers:
    """Answer for some examples of the task that a model was opened for (see `open_task`)."""
    from saucier.devices import choose_autocast_dtype

    assert opened.task is not None and opened.length is not None, "open_task knows them"
    encoding = encoding_of(opened, opened.length)
    encoded = opened.task.encode(examples, encoding)
    predictor = Predictor(opened.model, encoding, batch, choose_autocast_dtype("auto", opened.device)[0])
    answers = opened.task.predict(predictor, examples, encoded)
    return TaskAnswers(opened.task, examples, answers, encoded.truncation.rows)


def open_task(path: Path | str, base: str | None = None, number_format: str | None = None) -> OpenModel:
    """Open a fine-tuning's folder, its model, or a model that was published for a task.

    `base`: of an adapter, instead of the one that it names. `number_format`: as `format` of `saucier.load`. Raises
    `InputError` for a model that answers nothing of the kind.
    """
    from saucier.opened import open_model

    return find_task(open_model(Path(path), dtype="float32", base=base, format=number_format))


def find_task(opened: OpenModel) -> OpenModel:
    """Return a model with the task that its folder names, or that its head is for. Raises `InputError` for none."""
    from saucier.folders.kinds import find_model_folder

    folder = find_model_folder(resolve_folder(opened.path))
    config, length = read_task(folder) or (task_of_published(opened.model, str(opened.path)), task_length(opened))
    task = attach_trained(build_task(config), encoding_of(opened, length), folder)
    return replace(opened, task=task, length=length)


def encoding_of(opened: OpenModel, length: int) -> Encoding:
    """Return how rows are made for an open model."""
    return Encoding(opened.tokenizer, length, opened.model.config,
                    opened.model.provenance.generation.get("decoder_start_token_id"))


def task_length(opened: OpenModel) -> int:
    """Return how many tokens a row of a task may have, where no training says it."""
    from saucier.opened import room

    return room(opened.model.config, LONGEST_ROW, opened.tokenizer.handling.max_length)


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
        case c.LanguageHead() if model.paired:
            return TextToText()
        case _:
            raise InputError("this model has no head for a task that `predict` knows", where=where,
                             remedy="fine-tune it first: saucier finetune TASK --model ... --data ...")


def output_names(model: Transformer, count: int, where: str) -> tuple[str, ...]:
    """Return the names of a published head's outputs; numbers where it has none."""
    from saucier.checkpoints.layout import label_names

    return label_names(model.provenance.document, count, where) or tuple(f"LABEL_{number}" for number in range(count))


def read_known_task(path: Path | str) -> Task | None:
    """Return the task that a folder on this machine names, without opening its model; None where it names none.

    Raises `InputError` for a folder that is not there.
    """
    if not is_folder(path):
        if not is_hub_id(str(path)):
            resolve_folder(path)  # which says what to give
        return None
    inside = TaskFolder(Path(path)).model
    saved = read_task(inside if is_folder(inside) else find_finetuned_model(Path(path)))
    return None if saved is None else build_task(saved[0])


def predict_answers(path: Path | str, files: Sequence[str], texts: Sequence[str] = (), *, base: str | None = None,
                    options: RowOptions = AS_TRAINED, number_format: str | None = None) -> TaskAnswers:
    """Answer for the rows of files, and for texts. `base` and `number_format`: as in `open_task`.

    Raises `InputError` as `read_request`, before the model is opened where its folder says what it was trained for.
    """
    find_sources(files, options.read)
    known = read_known_task(path)
    request = None if known is None else read_request(known, files, texts, options)
    opened = open_task(path, base, number_format)
    assert opened.task is not None, "open_task knows it"
    request = request or read_request(opened.task, files, texts, options)
    return replace(answer_examples(opened, request.examples), request=request)
