"""Illegal combinations around attention to mixtures of keys, and the map that a stack's layers share."""

from __future__ import annotations

from saucier.config.layers import SelfAttention
from saucier.config.low_rank import Layerwise, LowRank
from saucier.config.model import Stack
from saucier.config.positions import NoPositions, Rotary
from saucier.config.visibility import Full
from saucier.errors import InputError


def check_low_rank(path: str, attention: SelfAttention) -> None:
    """A mixture is made of a whole text: nothing of it can be hidden, and it stands at no place."""
    if not isinstance(attention.kernel, LowRank):
        return
    if not isinstance(attention.visibility, Full) or attention.global_maps:
        raise InputError("kernel low_rank mixes all tokens of a text, later ones too", where=f"{path}.visibility",
                         remedy="use visibility full in an encoder, or kernel softmax or favor")
    if not isinstance(attention.positions, NoPositions | Rotary):
        raise InputError(f"kernel low_rank cannot take positions {attention.positions.kind}", where=f"{path}.positions",
                         remedy="use rotary, or positions in the embedding, or kernel softmax")


def check_shared_map(name: str, stack: Stack) -> None:
    """The map that all layers share has one size."""
    sizes = {(kernel.length, kernel.rank) for kernel in layerwise(stack)}
    if len(sizes) > 1:
        raise InputError("the layers of a stack share one map along the text, and these differ", where=name,
                         remedy="give them the same length and rank")


def layerwise(stack: Stack) -> list[LowRank]:
    """Return the kernels of a stack whose map all layers share."""
    return [kernel for attention in stack.attentions() if isinstance(kernel := attention.kernel, LowRank)
            and isinstance(kernel.sharing, Layerwise)]
