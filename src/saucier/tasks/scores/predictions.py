"""Files of predictions: JSONL, a row an object `{"id": "train.tsv:17", "prediction": ..., "gold": ..., ...}`.

A prediction is a text (a class, an answer), a number, a list of texts (tags, labels) or of numbers (scores), or null.
The gold may be in the row or in another file; whatever else a row holds (its text, probabilities) is kept as `extras`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saucier.errors import InputError, nearest
from saucier.files import write_text
from saucier.text.sources import find_sources
from saucier.text.tables import Row, rows

ID, PREDICTION, GOLD = "id", "prediction", "gold"


@dataclass(frozen=True, slots=True)
class Predicted:
    """One row. `gold` is None where the file has none, or says null; `has_gold` tells which."""

    prediction: Any
    gold: Any = None
    id: str | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    """File and line, for errors."""
    has_gold: bool = False


def write_predictions(path: Path, predicted: Iterable[Predicted]) -> None:
    """Write predictions, atomically; an id or a gold only where there is one."""
    write_text(path, "".join(as_line(one) + "\n" for one in predicted))


def as_line(one: Predicted) -> str:
    """Write a row as JSON, in one line."""
    return json.dumps(as_row(one), ensure_ascii=False)


def as_row(one: Predicted) -> dict[str, Any]:
    """Give the object that is written."""
    head = ({} if one.id is None else {ID: one.id}) | {PREDICTION: one.prediction}
    return head | ({GOLD: one.gold} if one.has_gold or one.gold is not None else {}) | dict(one.extras)


def read_predictions(name: str) -> list[Predicted]:
    """Read a file of predictions.

    Errors: `InputError` with file and line for a row without a prediction, an id that occurs twice, and what `tables`
    finds wrong with the file.
    """
    [source] = find_sources([name])
    found = [_predicted(row, f"{source.name}, line {row.line}") for row in rows(source, None)]
    if not found:
        raise InputError("holds no predictions", where=name, remedy="leave it out")
    _check_ids(found)
    return found


def _predicted(row: Row, where: str) -> Predicted:
    if PREDICTION not in row.cells:
        raise InputError(f"has no {PREDICTION!r}; it has {', '.join(row.cells) or 'nothing'}", where=where,
                         remedy=_nearest_remedy(list(row.cells)))
    extras = {name: value for name, value in row.cells.items() if name not in (ID, PREDICTION, GOLD)}
    number = row.cells.get(ID)
    return Predicted(row.cells[PREDICTION], row.cells.get(GOLD), None if number is None else str(number), extras, where,
                     GOLD in row.cells)


def _nearest_remedy(names: list[str]) -> str:
    close = nearest(PREDICTION, names) if names else ""
    found = close.removeprefix("did you mean ").rstrip("?")
    return f"rename {found} to 'prediction'" if close.startswith("did") else \
        'write rows such as {"id": "dev.tsv:2", "prediction": "positive"}'


def _check_ids(found: list[Predicted]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        if one.id is not None and one.id in seen:
            raise InputError(f"the id {one.id!r} stands in {seen[one.id]} already", where=one.where,
                             remedy="give each row an id of its own, or leave the ids out")
        if one.id is not None:
            seen[one.id] = one.where
