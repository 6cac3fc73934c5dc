"""`scores.json` of a run: what a judge gave it, unit by unit, so that runs can be compared in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ValidationError

from saucier.comparison.config import Judge
from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object, write_text
from saucier.tasks.metrics.statistics import Floats

FILE_NAME = "scores.json"


class Measure(Config):
    """What a score is."""

    name: str
    """Such as `bits per byte`."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    unit: str
    """What was scored one by one, such as `blocks of 256 tokens`."""


class Scores(Config):
    """A run's scores: the whole is the sum of the values over the sum of the weights."""

    judge: Judge
    """Who gave them."""
    measure: Measure
    """What they are."""
    checkpoint: str
    """Whose weights were scored: the last ones."""
    values: tuple[float, ...]
    """Of each unit."""
    weights: tuple[float, ...]
    """Of each unit."""

    @property
    def whole(self) -> float:
        """The run's score."""
        return sum(self.values) / sum(self.weights)

    def write(self, folder: Path) -> None:
        """Write `scores.json` into a run folder, atomically."""
        write_text(folder / FILE_NAME, self.model_dump_json() + "\n")


def read_scores(folder: Path, judge: Judge) -> Scores | None:
    """Read what a judge gave a run; None where this one has not seen it."""
    values = read_object(folder / FILE_NAME)
    if not values:
        return None
    try:
        found = Scores.model_validate(values)
    except ValidationError as error:
        raise InputError(f"not the scores of a run: {error.errors()[0]['msg']}", where=str(folder / FILE_NAME),
                         remedy="remove the file; it is made again") from error
    return found if found.judge == judge else None


def paired_values(first: list[Scores], second: list[Scores]) -> tuple[Floats, Floats, Floats]:
    """Return two arms' values and the weights of their units; as one unit each where the units are not the same.

    Shapes: S runs of each arm -> [S, N], [S, N], [N].
    """
    weights = [np.array(one.weights) for one in (*first, *second)]
    if all(len(one) == len(weights[0]) and np.allclose(one, weights[0]) for one in weights):
        return np.array([one.values for one in first]), np.array([one.values for one in second]), weights[0]
    return np.array([[one.whole] for one in first]), np.array([[one.whole] for one in second]), np.ones(1)
