"""The files of a fine-tuning as data, and what a task calls the columns in them. No torch, and no recipes: files are
looked at before either is imported.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.tasks.written.definitions import IS_COLUMN
from saucier.text.reading.guessing import ReadOptions


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
