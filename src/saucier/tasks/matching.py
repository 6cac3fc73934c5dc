"""Predictions matched with their golds, by id or in order, and the kind of task that their values tell.

Rows are matched by id where the predictions name golds, otherwise by order. Every value is checked and made what its
kind wants (`tasks/scores` has the table); errors name file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from saucier.errors import InputError
from saucier.tasks.examples import parse_finite
from saucier.tasks.prediction_files import Gold, Golds, PredictionRow

SHOWN = 3
"""Ids that an error names."""
LONG_LABEL, LONG_ANSWER = 4, 6
"""Words that a class's name, or an answer, has at most on average; what is longer is a text."""


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """All rows of one file of predictions, each with its gold, and with its id or its place as `id`."""

    rows: tuple[PredictionRow, ...]
    how: str
    """`by id` or `by order`."""
    missing: int = 0
    """Predictions that are null."""

    @property
    def golds(self) -> list[Any]:
        """The golds alone."""
        return [row.gold for row in self.rows]

    @property
    def predictions(self) -> list[Any]:
        """The predictions alone."""
        return [row.prediction for row in self.rows]


def match(predicted: Sequence[PredictionRow], golds: Golds | None) -> MatchedRows:
    """Put each prediction next to its gold, in the order of the golds.

    Errors: `InputError` for a row without a gold, ids that are missing on either side, and unequal numbers of rows.
    """
    missing = sum(one.prediction is None for one in predicted)
    if golds is None:
        if alone := next((one for one in predicted if not one.has_gold), None):
            raise InputError("has no 'gold'", where=alone.where, remedy="name the labelled file with --gold FILE")
        own = tuple(replace(one, id=one.id or f"row {place}") for place, one in enumerate(predicted, start=1))
        return MatchedRows(own, "own golds", missing)
    by_id = _by_id(predicted, golds)
    if by_id is not None:
        return MatchedRows(by_id, "by id", missing)
    if len(predicted) != len(golds.rows):
        raise InputError(f"{len(predicted)} predictions for {len(golds.rows)} golds, and no ids to match them by",
                         where=predicted[0].where.rsplit(", ", 1)[0],
                         remedy="give one prediction for each gold, in their order, or ids such as dev.tsv:2")
    return MatchedRows(tuple(map(_pair, predicted, golds.rows)), "by order", missing)


def _pair(one: PredictionRow, gold: Gold) -> PredictionRow:
    return replace(one, gold=gold.gold, id=one.id or gold.ids[0], extras={**gold.extras, **one.extras})


def _by_id(predicted: Sequence[PredictionRow], golds: Golds) -> tuple[PredictionRow, ...] | None:
    """Match by id; None where no prediction names a gold."""
    places = {name: place for place, gold in enumerate(golds.rows) for name in reversed(gold.ids)}
    found = {places[one.id]: one for one in predicted if one.id in places}
    if not found:
        return None
    strangers = [one for one in predicted if one.id not in places]
    if strangers:
        raise InputError(f"{_some(one.id or 'a row without id' for one in strangers)} not among the golds",
                         where=strangers[0].where, remedy="give the labelled file that these rows were made from")
    lacking = [gold for place, gold in enumerate(golds.rows) if place not in found]
    if lacking:
        raise InputError(f"no prediction for {_some(gold.ids[0] for gold in lacking)}", where=lacking[0].where,
                         remedy="predict every row; a row that cannot be predicted has the prediction null")
    return tuple(_pair(found[place], gold) for place, gold in enumerate(golds.rows))


def _some(names: Iterable[str]) -> str:
    """Write the first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more


Take = Callable[[Any], Any]
"""Makes a value what its kind wants; raises `ValueError` that says what it is instead."""


def take_class(value: Any) -> Any:
    """Take a label: a text, or a number written as one, so that a table's "1" is JSON's 1."""
    if isinstance(value, bool | int | str):
        return str(int(value)) if isinstance(value, bool) else str(value)
    raise ValueError(f"{_kind_name(value)}, not a label")


def take_number(value: Any) -> float:
    """Take a number, also one that is written as a text."""
    found = parse_finite(value)
    if found is None:
        raise ValueError(f"{_kind_name(value)}, not a number")
    return found


def take_list(value: Any) -> list[str]:
    """Take a list of texts."""
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return [str(one) for one in value]
    raise ValueError(f"{_kind_name(value)}, not a list of texts")


def take_numbers(value: Any) -> list[float]:
    """Take a list of numbers."""
    if isinstance(value, list):
        return [take_number(one) for one in value]
    raise ValueError(f"{_kind_name(value)}, not a list of numbers")


def take_text(value: Any) -> str:
    """Take a text; null is the empty one."""
    if value is None or isinstance(value, str):
        return value or ""
    raise ValueError(f"{_kind_name(value)}, not a text")


def take_references(value: Any) -> list[str]:
    """Take one reference or several; null and "" are none."""
    return [one for one in (take_list(value) if isinstance(value, list) else [take_text(value)]) if one]


def take_text_references(value: Any) -> list[str]:
    """Take one reference or several of a text."""
    found = take_list(value) if isinstance(value, list) else [take_text(value)]
    if value is None or not found:
        raise ValueError("no reference")
    return found


def optional(take: Take) -> Take:
    """Let null be: it equals no label."""
    return lambda value: None if value is None else take(value)


TAKES: Mapping[str, tuple[Take, Take]] = {"classes": (take_class, optional(take_class)),
                                          "choices": (take_class, optional(take_class)),
                                          "many_labels": (take_list, take_list), "numbers": (take_number, take_number),
                                          "tags": (take_list, take_list), "spans": (take_references, take_text),
                                          "texts": (take_text_references, take_text),
                                          "summaries": (take_text_references, take_text),
                                          "ranks": (take_number, take_number),
                                          "rankings": (take_numbers, take_numbers),
                                          "losses": (take_number, take_number)}
"""How the golds and the predictions of each kind are taken."""
PARALLEL = {"tags": "tags", "rankings": "scores"}
"""Kinds whose prediction is as long as its gold, and what it is a list of."""


def _kind_name(value: Any) -> str:
    names = {list: "a list", str: f"the text {str(value)[:40]!r}", bool: "true or false", type(None): "null",
             dict: "an object"}
    return names.get(type(value), f"the number {value}")


def convert_row(row: PredictionRow, kind: str) -> PredictionRow:
    """Check both values and make them what their kind wants.

    Errors: `InputError` with file and line for a value of another kind, and tags that are not as many as the gold's.
    """
    taken = []
    for side, take, value in zip(("gold", "prediction"), TAKES[kind], (row.gold, row.prediction), strict=True):
        try:
            taken.append(take(value))
        except ValueError as error:
            remedy = f"these rows are scored as {kind}; mend the row, or choose another --kind"
            raise InputError(f"the {side} of {row.id} is {error}", where=row.where, remedy=remedy) from error
    if kind in PARALLEL and len(taken[0]) != len(taken[1]):
        raise InputError(f"{len(taken[1])} {PARALLEL[kind]} for the {len(taken[0])} of its gold", where=row.where,
                         remedy="predict one for each word (tags) or candidate (scores)")
    return replace(row, gold=taken[0], prediction=taken[1])


def guess_kind(found: MatchedRows) -> str:
    """Tell the kind of task by its values. A wrong guess is seen in what is printed, and `--kind` mends it."""
    golds = [gold for gold in found.golds if gold is not None]
    answers = [answer for answer in found.predictions if answer is not None]
    if answers and all(isinstance(answer, list) for answer in answers):
        return _kind_of_lists(found, answers)
    if any(isinstance(gold, list) for gold in golds):
        texts = [str(one) for gold in golds for one in (gold if isinstance(gold, list) else [gold])]
        return "spans" if _mean_words(texts) <= LONG_ANSWER else "texts"
    if any("choices" in row.extras for row in found.rows):
        return "choices"
    if any(isinstance(value, float) for value in (*golds, *answers)):
        return "numbers"
    come_again = len({*map(str, golds)}) <= max(10, len(golds) // 2)  # as labels of classes do
    return "classes" if _mean_words(map(str, golds)) <= LONG_LABEL and come_again else "texts"


def _kind_of_lists(found: MatchedRows, answers: Sequence[list[Any]]) -> str:
    if any(isinstance(one, float) for answer in answers for one in answer):
        return "rankings"
    pairs = [(row.gold, row.prediction) for row in found.rows if isinstance(row.gold, list) and row.prediction]
    alike = all(len(gold) == len(answer) for gold, answer in pairs)
    return "tags" if alike and sum(len(gold) for gold, _ in pairs) > len(pairs) else "many_labels"


def _mean_words(texts: Iterable[str]) -> float:
    counts = [len(text.split()) for text in texts]
    return sum(counts) / max(1, len(counts))


def group_rows(found: MatchedRows, column: str) -> MatchedRows:
    """Make one ranking of all rows that have the same value in a column, in their order.

    Errors: `InputError` for a row without the column.
    """
    groups: dict[str, list[PredictionRow]] = {}
    for row in found.rows:
        if column not in row.extras:
            raise InputError(f"has no column {column!r}; there are {', '.join(row.extras) or 'none'}", where=row.where,
                             remedy="group by a column of the predictions or of the labelled file")
        groups.setdefault(str(row.extras[column]), []).append(row)
    rows = tuple(PredictionRow([row.prediction for row in members], [row.gold for row in members], name,
                               where=members[0].where) for name, members in groups.items())
    return replace(found, rows=rows)
