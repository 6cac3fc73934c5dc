"""Which layers a stack has, and in which order."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.config import Layers
from saucier.adaptation.surgery.shape import Shape
from saucier.config.turns import in_turns
from saucier.errors import InputError


def reorder_layers(shape: Shape, by: Layers) -> Shape:
    """Leave layers of a stack out, or let them come again, each with weights of its own.

    Raises `InputError` for a layer that is not there, and for layers that share weights.
    """
    option, stacks = ("--decoder-layers", "decoder") if by.decoder else ("--layers", "encoder")
    found = shape.stacks()
    name = stacks if stacks in found else next(iter(found))
    if by.decoder and len(found) < 2:
        raise InputError("the model has one stack", where=option, remedy="use --layers")
    stack = found[name]
    if isinstance(stack.layers, c.Share):
        raise InputError("the layers share their weights", where=option, remedy="leave it out")
    blocks = stack.blocks()
    if wrong := [one for one in by.order if one >= len(blocks)]:
        raise InputError(f"there is no layer {wrong[0]}: they are numbered from 0 to {len(blocks) - 1}", where=option,
                         remedy=f"such as {option} 0-{len(blocks) - 1}")
    layers = in_turns(tuple(blocks[one] for one in by.order))
    unchanged = by.order == tuple(range(len(blocks)))
    return shape.put(shape.config.model_copy(update={name: stack.model_copy(update={"layers": layers})}),
                     renumbered(shape.weights, name, by.order), same=float("inf") if unchanged else 0)


def renumbered(weights: Mapping[str, Tensor], stack: str, order: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the weights with a stack's blocks, and its layers' own positions, in another order."""
    numbered = re.compile(rf"({stack}\.(?:blocks|positions)\.)(\d+)(\..+)")
    matches = {name: numbered.fullmatch(name) for name in weights}
    kept = {name: weights[name] for name, match in matches.items() if match is None}
    moved = {f"{match[1]}{place}{match[3]}": weights[name] for name, match in matches.items() if match is not None
             for place, number in enumerate(order) if number == int(match[2])}
    return kept | moved
