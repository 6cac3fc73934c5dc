"""A prompting task: its settings, its rows worded as questions, and the examples drawn for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.recipes.source import read_yaml
from saucier.recipes.validation import validate_config
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import read_rows
from saucier.text.rows.batch import make_generator
from saucier.text.tokenizer.chat import build_sandbox, import_jinja, render_template


class WholeSum(Config):
    """The choice whose tokens have the largest probability together; long ones are at a disadvantage."""

    kind: Literal["sum"] = "sum"


class PerToken(Config):
    """The largest mean log-probability of a token. Source: Brown et al. 2020, §2.4, arXiv:2005.14165."""

    kind: Literal["token"] = "token"


class PerByte(Config):
    """The largest log-probability for a UTF-8 byte of the answer, so that tokenizers can be compared."""

    kind: Literal["byte"] = "byte"


class Unconditional(Config):
    """The choice that the question makes likelier by most: P(answer | prompt) / P(answer | `prompt` below).

    Source: Brown et al. 2020, §2.4, arXiv:2005.14165.
    """

    kind: Literal["unconditional"] = "unconditional"
    prompt: str = Field(default="Answer:", min_length=1)
    """What stands before the answer where no question does."""


Normalization = Annotated[WholeSum | PerToken | PerByte | Unconditional, Field(discriminator="kind")]
"""How the likelihoods of choices of different length are compared."""


class Likelihood(Config):
    """The likeliest of the choices is the answer."""

    kind: Literal["likelihood"] = "likelihood"
    normalization: Normalization = PerToken()
    """How choices of different length are compared."""


class Writing(Config):
    """What the model writes, greedily, is the answer."""

    kind: Literal["generation"] = "generation"
    tokens: int = Field(default=32, gt=0)
    """The most it may write."""
    stop: tuple[str, ...] = ("\n",)
    """The answer ends before the first of these."""
    scored_as: Literal["spans", "texts", "classes", "numbers"] = "spans"
    """By which metrics: those of answers (exact match and F1 as SQuAD's), texts, classes or numbers."""


class PromptTask(Config):
    """A task of questions with known answers, and the words in which a model is asked."""

    name: str = Field(min_length=1)
    """What it is called."""
    evaluate: str
    """The labelled file that is asked about; beside the task's own file where the path is relative."""
    train: str | None = None
    """The labelled file that solved examples are drawn from; without it only the zero-shot prompt is possible."""
    template: str = Field(min_length=1)
    """The prompt of a row, in Jinja: its columns by name. The answer follows it directly."""
    answer: str = " {{ answer }}"
    """How an answer is written behind the prompt, in Jinja: `answer` is the choice's text, or the gold's."""
    gold: str
    """The column that holds the right answer: a value of `labels`, the number of a choice from 0, or a text."""
    choices: tuple[str, ...] | str | None = None
    """The texts of the choices, or the column that holds each row's own."""
    labels: tuple[str, ...] | None = None
    """The values of the gold column, in the order of `choices`, where they are not numbers or the texts themselves."""
    instruction: str = ""
    """What stands before everything."""
    separator: str = "\n\n"
    """What stands between examples."""
    balanced: bool = False
    """Draw as many examples of each gold answer, as far as their number allows."""
    delimiter: str | None = None
    """What divides the columns of the files: a letter, or comma, semicolon, tab, bar; None: guessed."""
    encoding: str | None = None
    """How the files are written, such as cp1252; None: guessed."""
    by: Annotated[Likelihood | Writing, Field(discriminator="kind")] = Likelihood()
    """How the answer is taken."""

    @model_validator(mode="after")
    def _fits(self) -> PromptTask:
        if isinstance(self.by, Likelihood) and self.choices is None:
            raise ValueError("choices are compared, and there are none: add `choices:`, or `by: {kind: generation}`")
        if isinstance(self.choices, tuple) and not 1 < len(set(self.choices)) == len(self.choices):
            raise ValueError("`choices:` are two texts or more, each another one")
        if self.labels is not None and (not isinstance(self.choices, tuple) or len(self.labels) != len(self.choices)):
            raise ValueError("`labels:` name the choices one by one, so there must be as many")
        return self


def read_task(path: Path) -> PromptTask:
    """Read a task from a YAML file; its data files are next to it.

    Errors: `InputError` with the line of every key that is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError("there is no such file", where=str(path), remedy="give a YAML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read as text", where=str(path), remedy="give a YAML file") from error
    found = validate_config(read_yaml(text, str(path)), PromptTask)
    return found.model_copy(update={name: str(path.parent / value) for name in ("evaluate", "train")
                                    if (value := getattr(found, name)) is not None})


@dataclass(frozen=True, slots=True)
class Question:
    """One row, worded."""

    id: str
    prompt: str
    answers: tuple[str, ...]
    """What may come after the prompt: every choice; the right answer alone where there are no choices."""
    right: int
    """Which of them is right."""
    gold: str
    """The right answer as its column has it."""
    names: tuple[str, ...]
    """What a prediction of each answer is called: as the gold column would."""

    @property
    def solved(self) -> str:
        """The prompt with its right answer, as an example for others."""
        return self.prompt + self.answers[self.right]


def read_questions(task: PromptTask, name: str, limit: int | None = None) -> list[Question]:
    """Word the rows of a file.

    Errors: `InputError` for a column that the templates name and the file has not, and a gold that is no choice.
    """
    [source] = find_sources([name], ReadOptions(task.delimiter, task.encoding))
    found: list[Question] = []
    own = [task.gold, *([task.choices] if isinstance(task.choices, str) else [])]
    named = {"template": template_names(task.template), "answer": template_names(task.answer) - {"answer"},
             "gold and choices": {*own}}
    for row in read_rows(source, None):
        check_columns(named, list(row.cells), f"{name}, line {row.line}" if found else name)
        found.append(word_question(task, row.cells, f"{Path(name).name}:{row.line}", f"{name}, line {row.line}"))
        if limit is not None and len(found) == limit:
            break
    if not found:
        raise InputError("holds no rows", where=name, remedy="give a labelled file")
    return found


def check_columns(named: Mapping[str, set[str]], columns: Sequence[str], where: str) -> None:
    """Raise `InputError` for a name in a template that is no column of a row: Jinja would write nothing there."""
    for key, names in named.items():
        if unknown := sorted(names - {*columns}):
            raise InputError(f"no column {unknown[0]!r}, which {key} names", where=where,
                             remedy=f"columns: {', '.join(columns)}")


def template_names(template: str) -> set[str]:
    """Return the names that a template reads. Raises `InputError` for one that is broken."""
    jinja2 = import_jinja()
    try:
        from jinja2 import meta

        return set(meta.find_undeclared_variables(build_sandbox().parse(template)))
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"the template is broken: {error} (line {error.lineno})", where="template",
                         remedy="mend it; it is Jinja, such as {{ text }}") from error


def word_question(task: PromptTask, cells: Mapping[str, Any], number: str, where: str) -> Question:
    """Word one row."""
    own = cells.get("id")
    choices = choices_of(task, cells, where)
    right, names = 0, choices
    if choices:
        right, names = right_choice(task, cells[task.gold], choices, where)
    gold = str(cells[task.gold])
    answers = tuple(fill_template(task.answer, {**cells, "answer": one}, where) for one in choices or (gold,))
    return Question(number if own is None else str(own), fill_template(task.template, cells, where), answers, right,
                    names[right] if choices else gold, names)


def fill_template(template: str, cells: Mapping[str, Any], where: str) -> str:
    """Fill a template. Raises `InputError` with the row's place."""
    try:
        return render_template(template, cells)
    except InputError as error:
        raise InputError(error.what.replace("chat template", "template"), where=where,
                         remedy="mend the template") from error


def choices_of(task: PromptTask, cells: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the texts of a row's choices; none where the task has none."""
    if not isinstance(task.choices, str):
        return task.choices or ()
    value = cells[task.choices]
    if not isinstance(value, list) or len(value) < 2:
        raise InputError(f"{task.choices!r} is no list of choices", where=where, remedy="give at least two in each row")
    return tuple(map(str, value))


def right_choice(task: PromptTask, gold: Any, choices: Sequence[str], where: str) -> tuple[int, tuple[str, ...]]:
    """Return which choice is right, and what each is called in the gold column."""
    numbers = tuple(str(place) for place in range(len(choices)))
    for names in (task.labels, numbers, tuple(choices)):
        if names is not None and str(gold) in names:
            return list(names).index(str(gold)), names
    raise InputError(f"the gold {str(gold)[:60]!r} is no choice", where=where,
                     remedy=f"choices: {', '.join(choices)}; name their golds by `labels:`")


SHOT_STREAM = 77
"""Separates these random numbers from others of the same seed."""


def draw_shots(train: Sequence[Question], question: Question, count: int, *, balanced: bool, key: tuple[int, ...]) \
        -> list[Question]:
    """Draw `count` examples, none of them the question itself, in random order.

    `key` is (seed, draw, number of the question). Balanced: the golds take turns, each in random order.
    """
    random = make_generator(*key[:1], SHOT_STREAM, *key[1:])
    order = [place for place in random.permutation(len(train)).tolist() if train[place].prompt != question.prompt]
    if balanced:
        order = balance_golds(order, [train[place].gold for place in order])
    chosen = order[:count]
    return [train[place] for place in np.array(chosen, dtype=np.int64)[random.permutation(len(chosen))].tolist()]


def balance_golds(order: Sequence[int], golds: Sequence[str]) -> list[int]:
    """Put one of each gold first, then a second of each, and so on."""
    seen: dict[str, int] = {}
    turns = []
    for gold in golds:
        seen[gold] = seen.get(gold, 0) + 1
        turns.append(seen[gold])
    return [place for _, place in sorted(zip(turns, order, strict=True), key=lambda pair: pair[0])]
