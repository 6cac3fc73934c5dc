"""The metric of a task by which weights are chosen and training stops, by its name. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saucier.errors import InputError
from saucier.jobs.score import choose_metrics
from saucier.tasks.metrics.metric import Metric, full_value
from saucier.tasks.scores import slug
from saucier.tasks.task import Task


def choose_metric(task: Task, examples: Sequence[Any], name: str, where: str = "training.stop.metric") -> Metric:
    """Return a metric of a task by its name, as an option writes it. Raises `InputError` for one that it has not."""
    parts = task.scored_parts(examples)
    if len(parts) > 1:
        raise InputError(f"a mixture of {len(parts)} tasks has no {name}", where=where, remedy="use loss")
    golds = task.group_for_scoring(examples, [task.gold(one) for one in examples])
    try:
        return choose_metrics([slug(name)], task.scored_as, golds, [golds])[0]
    except InputError as error:
        raise InputError(error.what, where=where, remedy=f"{error.remedy}, or use loss") from error


def measure_metric(task: Task, metric: str, examples: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Return what predictions score by a metric."""
    golds, said = (task.group_for_scoring(examples, values)
                   for values in ([task.gold(one) for one in examples], predictions))
    [found] = choose_metrics([slug(metric)], task.scored_as, golds, [said])
    return full_value(found.measure(golds, said))
