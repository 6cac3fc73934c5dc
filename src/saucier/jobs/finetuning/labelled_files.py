"""The files of a fine-tuning as data, and what a task calls the columns in them. No torch, and no recipes: files are
looked at before either is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.errors import InputError, suggest_name
from saucier.tasks.definitions import find_task_class
from saucier.tasks.written.definitions import IS_COLUMN
from saucier.text.reading.guessing import ReadOptions
from saucier.text.reading.sources import find_sources
from saucier.text.reading.tables import list_columns, refuse_missing_column


class LabelledFiles(Config):
    """The files that the task is learned from and measured with."""

    train: tuple[str, ...] = Field(min_length=1)
    """To learn from: jsonl, csv, tsv, parquet, compressed or not, globs; what the task reads beside."""
    held_out: tuple[str, ...] = ()
    """To measure with while one decides; none: `share` of the training rows."""
    test: tuple[str, ...] = ()
    """To measure with at the very end."""
    share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the training rows that is held out where no file is. Rows with equal texts stay together."""
    split: Literal["stratified"] | None = None
    """How that share is drawn. stratified: the same share of each class, which a new classification takes. None: each
    text by itself, so that more rows change no row's side."""
    limit: int | None = Field(default=None, gt=0)
    """Learn from so many rows at most, the first ones."""
    held_out_columns: dict[str, str] | None = None
    """Columns of the held-out files that have other names than in `train`: by their role, as `{text: body}`."""
    test_columns: dict[str, str] | None = None
    """The same of the test files."""
    bad_rows: Literal["refuse", "drop"] | None = None
    """What happens to rows that cannot be used: they are refused (None too), or left out, counted and listed."""
    delimiter: str | None = None
    """What divides the columns of tables: a letter, or comma, semicolon, tab, bar; None: guessed for each file."""
    encoding: str | None = None
    """How the files are written, such as cp1252; None: guessed for each file."""

    @property
    def read_options(self) -> ReadOptions:
        """How the files are read."""
        return ReadOptions(self.delimiter, self.encoding)


def column_roles(task: type[Config]) -> list[str]:
    """List what a task calls the columns that it reads."""
    return [name for name, field in task.model_fields.items() if IS_COLUMN in field.metadata]


PLAIN_NAME = re.compile(r'"([^"\\]+)"|(?!(?:null|true|false)$)([^\W\d][\w-]*)')
"""A value that is a word however it is read: in quotes, or of letters."""
PARTS = {"held-out": "held_out_columns", "held_out": "held_out_columns", "test": "test_columns"}
"""The settings of columns that other files than those of training have."""


def row_changes(task: str, columns: Mapping[str, str], **data: str | None) -> list[str]:
    """Return changes to settings that say how rows are read: columns by role, or PART.role, and fields of `data`.

    `task`: a kind of task, which knows the role of a column that has none (""). Raises `InputError` where it does not.
    """
    found: dict[str, Any] = {f"data.{key}": value for key, value in data.items() if value is not None}
    for role, name in columns.items():
        part, _, own = role.rpartition(".")
        if part and part not in PARTS:
            raise InputError(f"there are no files {part!r}", where="--column", remedy=suggest_name(part, [*PARTS]))
        if part:
            found.setdefault(f"data.{PARTS[part]}", {})[own or first_role(task)] = name
        else:
            found[f"task.{own or first_role(task)}"] = name
    return [f"{key}={json.dumps(value)}" for key, value in found.items()]


def first_role(task: str) -> str:
    """Return what a kind of task calls the first column that it reads. Raises `InputError` for what is no kind."""
    found = find_task_class(task)
    roles = [] if found is None else column_roles(found)
    if not roles:
        raise InputError("which column is it?", where="--column", remedy="write ROLE=NAME, such as text=review")
    return roles[0]


def refuse_missing_columns(task: str, words: Sequence[str], files: Mapping[str, Sequence[str]]) -> None:
    """Raise `InputError` for a column that words name and that the header of a table to learn from lacks.

    All that is wrong with rows is found when they are read. That takes numpy and the settings of a whole training, and
    a slip should be told at once. What is no plain name is left to them. `task`: a kind of task; `words`:
    `key.sub=value`.
    """
    kind = find_task_class(task)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    roles = [] if kind is None else [role for role in column_roles(kind) if f"task.{role}" in given]
    read_by = [key for key in ("data.delimiter", "data.encoding") if key in given]
    named = {key: found[1] or found[2] for key in (*read_by, *(f"task.{role}" for role in roles))
             if (found := PLAIN_NAME.fullmatch(given[key])) is not None}
    if not roles or not {*read_by} <= named.keys():
        return
    for source in find_sources(files["train"], ReadOptions(named.get("data.delimiter"), named.get("data.encoding"))):
        if source.format == "csv" or (source.format == "tsv" and task != "tagging"):  # whose tsv files have no header
            known = list_columns(source)
            for role in (one for one in roles if f"task.{one}" in named):
                refuse_missing_column(named[f"task.{role}"], known, source.name, role)
