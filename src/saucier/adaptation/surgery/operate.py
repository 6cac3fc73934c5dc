"""`operate`: a model of another shape, with weights made of those that it had."""

from __future__ import annotations

from collections.abc import Sequence

from saucier import config as c
from saucier.adaptation.starting_weights import rebuild_model
from saucier.adaptation.surgery.operations import (
    AttentionOperation,
    Blocks,
    GroupedHeads,
    Hashes,
    Layers,
    MixedKeys,
    NewTokens,
    Operation,
    Positions,
    RandomFeatures,
    Tokens,
    Windows,
)
from saucier.adaptation.surgery.stacks import (
    change_hashes,
    group_heads,
    reorder_layers,
    use_blocks,
    use_mixed_keys,
    use_windows,
)
from saucier.adaptation.surgery.tables import ModelState, add_tokens, extend_positions, keep_tokens, renumber_defaults
from saucier.errors import InputError
from saucier.model import Transformer


def operate(model: Transformer, *, by: Sequence[Operation], pad: int = 0) -> tuple[Transformer, float]:
    """Return a model of another shape, and up to how many tokens a text gives the numbers that it gave before.

    `by`: the operations, one after the other; positions come before what is seen, as a BigBird draws blocks for its
    longest input. `pad`: the padding id. The model that is given stays as it is. Raises `InputError` for what cannot be
    done with this model.
    """
    shape = ModelState(model.config, model.state_dict(), pad)
    for operation in by:
        shape = apply_operation(shape, operation)
    made = rebuild_model(model, shape.config, shape.weights)
    for tokens in (operation for operation in by if isinstance(operation, Tokens)):
        renumber_defaults(made, tokens.numbers())
    return made, shape.same


def apply_operation(shape: ModelState, by: Operation) -> ModelState:
    """Do one operation."""
    attentions = [part for stack in shape.stacks().values() for part in stack.attentions()]
    if isinstance(by, AttentionOperation) and not attentions:
        raise InputError("the model has no attention", where="--attention", remedy="leave it out")
    match by:
        case Windows():
            return use_windows(shape, by)
        case Blocks():
            return use_blocks(shape, by)
        case RandomFeatures():
            config = shape.attentions(lambda attention: attention.model_copy(update={
                "kernel": c.Favor(features=by.count)}))  # where one cannot, building the model says why
            return shape.put(config, same=0)
        case MixedKeys():
            return use_mixed_keys(shape, by)
        case Hashes():
            return change_hashes(shape, by)
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
