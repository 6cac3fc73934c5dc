"""Vectors of texts as a task, as data: what is learned, and from which columns. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config
from saucier.tasks.columns import ColumnName


class InBatch(Config):
    """Each text finds its own pair among those of the whole batch, and among wrong texts where the file has some."""

    kind: Literal["in_batch"] = "in_batch"
    scale: float = Field(default=20.0, gt=0)
    """Factor on the cosines. Source: the usual one, Reimers and Gurevych, code release."""


class CosineScore(Config):
    """The cosine of two texts is their score, moved into 0 … 1."""

    kind: Literal["cosine"] = "cosine"
    low: float | None = None
    """The score of texts that have nothing to do with each other; None: the lowest of the training file."""
    high: float | None = None
    """The score of texts that mean the same; None: the highest of the training file."""


class ContrastivePairs(Config):
    """Pairs that belong together or do not, told by a label of two."""

    kind: Literal["contrastive"] = "contrastive"
    margin: float = Field(default=0.5, gt=0)
    """Distance (1 - cosine) up to which others are pushed apart."""
    together: str = "1"
    """The label of pairs that belong together."""


class TripletTexts(Config):
    """A text, its pair, and a wrong one."""

    kind: Literal["triplet"] = "triplet"
    margin: float = Field(default=0.5, gt=0)
    """By how much the pair must be nearer, in distances of vectors of length one."""


class Embedding(Config):
    """Vectors by which texts are compared. Source: Reimers and Gurevych 2019, arXiv:1908.10084."""

    kind: Literal["embedding"] = "embedding"
    learns: Annotated[InBatch | CosineScore | ContrastivePairs | TripletTexts,
                      Field(discriminator="kind")] = InBatch()
    """What is learned, and from which columns."""
    text: ColumnName = None
    """The column of the first text."""
    pair: ColumnName = None
    """The column of the text that it is compared with."""
    negative: ColumnName = None
    """The column of a wrong text (in_batch: where the file has one; triplet: always)."""
    score: ColumnName = None
    """The column of the score (cosine)."""
    label: ColumnName = None
    """The column of the label (contrastive)."""
