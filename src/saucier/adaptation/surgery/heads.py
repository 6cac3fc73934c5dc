"""Fewer heads for keys and values. Letters: H heads, G groups, E head width, D dim."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.config import GroupedHeads
from saucier.adaptation.surgery.shape import Shape
from saucier.config.rewriting import rewritten
from saucier.errors import InputError

MAPS = re.compile(r"(?:encoder|decoder)\.blocks\.\d+\.\w+\.inner\.(qkv|kv|global_qkv)\.(?:weight|bias)")


def group_heads(shape: Shape, by: GroupedHeads) -> Shape:
    """Pool the heads for keys and values of every attention by their mean.

    Raises `InputError` for heads that do not divide into so many groups, and where their number differs in the model.
    """
    projections = {node for stack in shape.stacks().values() for block in stack.blocks()
                   for residual in block.sublayers
                   if (node := getattr(residual.inner, "projection", None)) is not None}
    if not projections:
        raise InputError("the model has no attention", where="--kv-heads", remedy="leave it out")
    for one in projections:
        if (one.kv_heads or one.heads) % by.count:
            raise InputError(f"{one.kv_heads or one.heads} heads do not divide into {by.count} groups",
                             where="--kv-heads", remedy=f"give one of {', '.join(divisors(one.kv_heads or one.heads))}")
        if not one.key_bias:
            raise InputError("keys without the bias that values have cannot be pooled", where="--kv-heads",
                             remedy="leave it out")
    if len({one.widths(shape.config.dim) for one in projections}) > 1:
        raise InputError("the attentions of this model have different numbers of heads", where="--kv-heads",
                         remedy="leave it out")
    projection = projections.pop()
    before, after = projection, projection.model_copy(update={"kv_heads": by.count})
    config = shape.config.model_copy(update={
        name: rewritten(stack, lambda node: node.model_copy(update={"kv_heads": by.count})
                     if isinstance(node, c.Projection) else node) for name, stack in shape.stacks().items()})
    weights = {name: pooled(weight, match[1], before.widths(shape.config.dim), after.widths(shape.config.dim))
               if (match := MAPS.fullmatch(name)) else weight for name, weight in shape.weights.items()}
    return shape.put(config, weights, same=float("inf") if by.count == (before.kv_heads or before.heads) else 0)


def pooled(weight: Tensor, kind: str, before: tuple[int, int, int], after: tuple[int, int, int]) -> Tensor:
    """Pool the rows of keys and values of one map. Shapes: [.. + 2·H·E, D] -> [.. + 2·G·E, D], biases likewise."""
    query, key, width = before
    own = [] if kind == "kv" else [weight[:query]]
    parts = weight[-2 * key:].split(key)
    groups = after[1] // width
    means = [part.unflatten(0, (groups, -1, width)).mean(dim=1).flatten(0, 1) for part in parts]
    return torch.cat([*own, *means])


def divisors(count: int) -> list[str]:
    """Return the numbers that divide a number of heads."""
    return [str(one) for one in range(1, count + 1) if count % one == 0]
