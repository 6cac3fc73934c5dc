"""`operate`: a model of another shape, with weights made of those that it had."""

from __future__ import annotations

from collections.abc import Sequence

from saucier.adaptation.rebuilt import rebuilt
from saucier.adaptation.surgery.attention import hash_otherwise, mix_keys, see_blocks, see_windows, use_features
from saucier.adaptation.surgery.config import (
    Blocks,
    GroupedHeads,
    Hashes,
    Layers,
    MixedKeys,
    NewTokens,
    Operation,
    Positions,
    RandomFeatures,
    Seen,
    Tokens,
    Windows,
)
from saucier.adaptation.surgery.heads import group_heads
from saucier.adaptation.surgery.layers import reorder_layers
from saucier.adaptation.surgery.positions import extend_positions
from saucier.adaptation.surgery.shape import Shape, has_attention
from saucier.adaptation.surgery.vocabulary import add_tokens, keep_tokens, tell
from saucier.model import Transformer


def operate(model: Transformer, *, by: Sequence[Operation], pad: int = 0) -> tuple[Transformer, float]:
    """Return a model of another shape, and up to how many tokens a text gives the numbers that it gave before.

    `by`: the operations, one after the other; positions come before what is seen, as a BigBird draws blocks for its
    longest input. `pad`: the padding id. The model that is given stays as it is. Raises `InputError` for what cannot be
    done with this model.
    """
    shape = Shape(model.config, model.state_dict(), pad)
    for operation in by:
        shape = operated(shape, operation)
    made = rebuilt(model, shape.config, shape.weights)
    for tokens in (operation for operation in by if isinstance(operation, Tokens)):
        tell(made, tokens.numbers())
    return made, shape.same


def operated(shape: Shape, by: Operation) -> Shape:
    """Do one operation."""
    if isinstance(by, Seen):
        has_attention(shape)
    match by:
        case Windows():
            return see_windows(shape, by)
        case Blocks():
            return see_blocks(shape, by)
        case RandomFeatures():
            return use_features(shape, by)
        case MixedKeys():
            return mix_keys(shape, by)
        case Hashes():
            return hash_otherwise(shape, by)
        case Positions():
            return extend_positions(shape, by)
        case GroupedHeads():
            return group_heads(shape, by)
        case Layers():
            return reorder_layers(shape, by)
        case Tokens():
            return keep_tokens(shape, by)
        case NewTokens():
            return add_tokens(shape, by)
