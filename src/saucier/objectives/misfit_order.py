"""What rows that go on from step to step ask of model and data. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from saucier import config as architecture
from saucier.objectives import config as c
from saucier.objectives.misfit import Misfit
from saucier.text.config import Data, LanguageData


def order_misfits(objective: c.Single, model: architecture.Transformer, data: Data) -> Iterator[Misfit]:
    """Is there a memory that ends, for rows that go on, and none that every row must fill, for rows that do not?"""
    rows = getattr(objective, "rows", None)
    memories = [stack.memory for stack in (model.encoder, model.decoder) if stack and stack.memory]
    match rows:
        case c.ConsecutiveRows() if not memories or memories[0].length is None:
            what = "a memory that ends" if memories else "a memory"
            yield Misfit(("rows", "kind"), f"rows that go on are read beside {what}, which the model does not have",
                         "use a model with one (family: transfo_xl, model.memory=128), or kind: shuffled", own=True)
        case c.ConsecutiveRows() if isinstance(data, LanguageData):
            yield Misfit(("rows", "kind"), "rows of several languages are drawn, and none goes on",
                         "use data of kind: text, or kind: shuffled", own=True)
        case c.ShuffledRows() | c.DocumentRows() if memories and isinstance(memories[0].start, architecture.FromZeros):
            yield Misfit(("rows", "kind"), "the model reads a memory of zeros before every row that does not go on",
                         "use rows: {kind: consecutive}, or model.memory=null", own=True)


def alone(objectives: tuple[c.Single, ...]) -> Iterator[tuple[int, Misfit]]:
    """Yield, by its number, each part of a mixture whose rows go on: they would go on at steps of other parts."""
    for number, objective in enumerate(objectives):
        if isinstance(getattr(objective, "rows", None), c.ConsecutiveRows) and len(objectives) > 1:
            yield number, Misfit(("rows", "kind"), "rows go on from step to step, and parts of a mixture take turns",
                                 "use rows that are shuffled, or this objective alone", own=True)
