"""The published names of a model's maps, by its family's rules, and which rows of ours each of them is.

Letters: O outputs, R rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from saucier.checkpoints.foreign import BASE, Names
from saucier.checkpoints.orders import HeadByHead
from saucier.checkpoints.rules import Concat, Match, Same, Transpose
from saucier.errors import InputError

END = ".weight"


@dataclass(frozen=True, slots=True)
class ForeignMap:
    """A linear map as it is published."""

    name: str
    """Of the module, without `.weight`."""
    module: str
    """Ours, which may hold several."""
    start: int
    """Its first row in ours."""
    rows: int
    turned: bool
    """Whether its matrix is stored as [inputs, outputs]."""
    theirs: Callable[[Tensor], Tensor]
    """Puts rows [O, R] of ours into the published order."""
    ours: Callable[[Tensor], Tensor]
    """The inverse."""


def same(rows: Tensor) -> Tensor:
    """Return the rows as they are."""
    return rows


def foreign_maps(model: nn.Module, names: Names) -> dict[str, ForeignMap]:
    """Return every linear map and token table that has a published name and rows of its own, by that name."""
    found: dict[str, ForeignMap] = {}
    for module, one in model.named_modules():
        match = names.rules.match(module + END) if hasattr(one, "weight") and not inside(module) else None
        if match is not None:
            rows: int = getattr(one, "num_embeddings", 0) or getattr(one, "out_features", 0)
            found |= {each.name: each for each in maps_of(match, module, rows, names)}
    return found


def inside(module: str) -> bool:
    """Say whether a module is inside what a rewrite put into a model."""
    return module.endswith(".base") or ".pairs." in module


def maps_of(match: Match, module: str, rows: int, names: Names) -> list[ForeignMap]:
    """Return the published maps that one of our matrices holds; none where its rule is of another kind."""
    theirs = [foreign.replace(BASE, names.layout.base_of(names.published)) for foreign in match.theirs]
    if not rows or not all(name.endswith(END) for name in theirs):
        return []
    short = [name.removesuffix(END) for name in theirs]
    match match.operation:
        case Same() | Transpose() as operation:
            return [ForeignMap(short[0], module, 0, rows, isinstance(operation, Transpose), same, same)]
        case Concat(rows=each):
            starts = [sum(each[:number]) for number in range(len(each))]
            return [ForeignMap(name, module, start, count, False, same, same)
                    for name, start, count in zip(short, starts, each, strict=True)]
        case HeadByHead() as operation:
            return [ForeignMap(short[0], module, 0, rows, False, lambda tensor: operation.theirs(tensor)[0],
                               lambda tensor: operation.ours([tensor]))]
        case _:
            return []


def no_place(module: str, names: Names) -> InputError:
    """Build the error for a map of ours that no published module is."""
    return InputError(f"{module} has no module of its own in the layout of {names.layout.model_type}", where="model",
                      remedy="save the adapter in our own form (own)")
