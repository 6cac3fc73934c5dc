"""Which forms of rows teach their words beside the task."""

from __future__ import annotations

from saucier.objectives.base import Objective
from saucier.objectives.beside_words import BesideWords
from saucier.objectives.labelling import OfLogits
from saucier.tasks.forms_config import BothOrders, TextForm, Transformed


def with_words(task: OfLogits, form: TextForm) -> Objective:
    """Return what is learned of a task in a form: the task alone, or the words of its rows too."""
    match form:
        case (Transformed(auxiliary=weight) | BothOrders(auxiliary=weight)) if weight:
            return BesideWords(task, weight)
        case _:
            return task
