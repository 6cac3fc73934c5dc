"""Tasks as data: what is to be told of a text, and which columns of a labelled file hold what. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config import Pick
from saucier.config.base import Config

ColumnName = str | None
"""A column of the file; None: found by the names that such columns usually have."""


class Texts(Config):
    """What all tasks share that tell one thing of a text, or of a pair of texts."""

    text: ColumnName = None
    """The column of the text (of the first text: the premise, the question)."""
    pair: ColumnName = None
    """The column of the second text. Without it, a second text is read where the file has a usual name for it."""
    pick: Pick | None = None
    """Where the text's vector is taken; None: as the model's family publishes its classifiers."""


class Classification(Texts):
    """One of several classes. Source: Devlin et al. 2019, §4.1, arXiv:1810.04805."""

    kind: Literal["classification"] = "classification"
    label: ColumnName = None
    """The column of the class."""
    labels: tuple[str, ...] = ()
    """The classes, in the order of the model's outputs; none: those of the training file, sorted."""


class ManyLabels(Texts):
    """Any number of labels, each true or false on its own."""

    kind: Literal["many_labels"] = "many_labels"
    label: ColumnName = None
    """The column of the labels: a list in JSONL and parquet, words with a separator in other tables."""
    separator: str = Field(default=",", min_length=1)
    """What stands between two labels in one cell."""
    labels: tuple[str, ...] = ()
    """The labels, in the order of the model's outputs; none: those of the training file, sorted."""


class Regression(Texts):
    """One number, such as the similarity of two texts. Source: Devlin et al. 2019, §4.1 (STS-B)."""

    kind: Literal["regression"] = "regression"
    score: ColumnName = None
    """The column of the number."""


TaskConfig = Annotated[Classification | ManyLabels | Regression, Field(discriminator="kind")]
"""Any task."""
