"""What a metric is: a name, and how examples are measured. The metrics themselves stand beside this file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from saucier.tasks.metrics.intervals import Measured
from saucier.tasks.metrics.statistics import Floats

Better = Literal["higher", "lower"]
Measure = Callable[[Sequence[Any], Sequence[Any]], Measured]
"""From golds and predictions, one of each an example, to what was found."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A way to score predictions against golds."""

    name: str
    """As the field writes it, such as `macro F1`."""
    measure: Measure
    unit: str = "rows"
    """What one example is."""
    better: Better = "higher"


def indicator(values: Sequence[bool]) -> Floats:
    """Give 1 for each true value. Shapes: [N]."""
    return np.array(values, dtype=np.float64)


def one_hot(values: Sequence[Any], names: Sequence[Any]) -> Floats:
    """Tell by a 1 which name each value is; a row of zeros for a value that is none. Shapes: N, C -> [N, C]."""
    places = {name: place for place, name in enumerate(names)}
    return many_hot([[value] for value in values], places)


def many_hot(sets: Sequence[Sequence[Any]], places: dict[Any, int]) -> Floats:
    """Tell by 1s which names each set holds. Shapes: N, C -> [N, C]."""
    found = np.zeros((len(sets), len(places)))
    for row, names in enumerate(sets):
        for name in names:
            if name in places:
                found[row, places[name]] = 1.0
    return found
