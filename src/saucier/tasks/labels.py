"""Labels as numbers, and those that are never trained. Letters: N examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError, nearest
from saucier.tasks.examples import Example


def label_numbers(labels: Sequence[str], known: tuple[str, ...]) -> NDArray[Any]:
    """Return the number of each label. Shapes: [N]."""
    places = {label: number for number, label in enumerate(known)}
    return np.array([places[label] for label in labels], dtype=np.int64)


def refuse_unknown(found: Sequence[tuple[Example, str]], known: tuple[str, ...]) -> None:
    """Raise `InputError` for the first label that is not known, with how many rows have such a one."""
    names = set(known)
    wrong = [(one, label) for one, label in found if label not in names]
    if wrong:
        one, label = wrong[0]
        rows = len({other.place for other, _ in wrong})
        more = f" (and {rows - 1} more rows have such labels)" if rows > 1 else ""
        raise InputError(f"label {label!r} is not among the {len(known)} that are learned{more}", where=str(one.place),
                         remedy=f"{nearest(label, list(known))}; leave the rows out, or train on that label too")
