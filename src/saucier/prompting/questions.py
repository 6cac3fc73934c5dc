"""Rows of a labelled file as questions: prompt, choices and right answer, worded by the task's templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.prompting.config import PromptTask
from saucier.text.chat import library, render, sandbox
from saucier.text.sources import find_sources
from saucier.text.tables import rows


@dataclass(frozen=True, slots=True)
class Question:
    """One row, worded."""

    id: str
    prompt: str
    answers: tuple[str, ...]
    """What may stand behind the prompt: every choice; the right answer alone where there are no choices."""
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
    [source] = find_sources([name])
    found: list[Question] = []
    named = named_columns(task)
    for row in rows(source, None):
        check_columns(named, list(row.cells), f"{name}, line {row.line}" if found else name)
        found.append(worded(task, row.cells, f"{Path(name).name}:{row.line}", f"{name}, line {row.line}"))
        if limit is not None and len(found) == limit:
            break
    if not found:
        raise InputError("holds no rows", where=name, remedy="give a labelled file")
    return found


def named_columns(task: PromptTask) -> Mapping[str, set[str]]:
    """Return the columns that a task names, by where it does. Raises `InputError` for a template that is broken."""
    own = [task.gold, *([task.choices] if isinstance(task.choices, str) else [])]
    return {"template": undeclared(task.template), "answer": undeclared(task.answer) - {"answer"},
            "gold and choices": {*own}}


def check_columns(named: Mapping[str, set[str]], columns: Sequence[str], where: str) -> None:
    """Raise `InputError` for a name in a template that is no column of a row: Jinja would write nothing there."""
    for key, names in named.items():
        if unknown := sorted(names - {*columns}):
            raise InputError(f"no column {unknown[0]!r}, which {key} names", where=where,
                             remedy=f"columns: {', '.join(columns)}")


def undeclared(template: str) -> set[str]:
    """Return the names that a template reads. Raises `InputError` for one that is broken."""
    jinja2 = library()
    try:
        from jinja2 import meta

        return set(meta.find_undeclared_variables(sandbox().parse(template)))
    except jinja2.TemplateSyntaxError as error:
        raise InputError(f"the template is broken: {error} (line {error.lineno})", where="template",
                         remedy="mend it; it is Jinja, such as {{ text }}") from error


def worded(task: PromptTask, cells: Mapping[str, Any], number: str, where: str) -> Question:
    """Word one row."""
    own = cells.get("id")
    choices = choices_of(task, cells, where)
    right, names = 0, choices
    if choices:
        right, names = place_of(task, cells[task.gold], choices, where)
    gold = str(cells[task.gold])
    answers = tuple(filled(task.answer, {**cells, "answer": one}, where) for one in choices or (gold,))
    return Question(number if own is None else str(own), filled(task.template, cells, where), answers, right,
                    names[right] if choices else gold, names)


def filled(template: str, cells: Mapping[str, Any], where: str) -> str:
    """Fill a template. Raises `InputError` with the row's place."""
    try:
        return render(template, cells)
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


def place_of(task: PromptTask, gold: Any, choices: Sequence[str], where: str) -> tuple[int, tuple[str, ...]]:
    """Return which choice is right, and what each is called in the gold column."""
    numbers = tuple(str(place) for place in range(len(choices)))
    for names in (task.labels, numbers, tuple(choices)):
        if names is not None and str(gold) in names:
            return list(names).index(str(gold)), names
    raise InputError(f"the gold {str(gold)[:60]!r} is no choice", where=where,
                     remedy=f"choices: {', '.join(choices)}; name their golds by `labels:`")
