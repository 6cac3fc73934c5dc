"""`operate`: a model of another shape, with weights made of those that it had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saucier.adaptation.quantization.maps import refuse_quantized
from saucier.adaptation.starting_weights import rebuild_model
from saucier.adaptation.surgery.factors import factorize, find_ranks, keep_ranks
from saucier.adaptation.surgery.operations import (
    AttentionOperation,
    Blocks,
    Factorize,
    GroupedHeads,
    Hashes,
    Heads,
    Layers,
    MixedKeys,
    Neurons,
    NewTokens,
    Operation,
    Positions,
    RandomFeatures,
    Ranks,
    Tokens,
    Windows,
)
from saucier.adaptation.surgery.stacks import (
    change_hashes,
    group_heads,
    reorder_layers,
    use_blocks,
    use_mixed_keys,
    use_random_features,
    use_windows,
)
from saucier.adaptation.surgery.tables import ModelState, add_tokens, extend_positions, keep_tokens, renumber_defaults
from saucier.adaptation.surgery.units import Attention, keep_heads, keep_neurons, list_places
from saucier.errors import InputError
from saucier.model import Transformer


def operate(model: Transformer, *, by: Sequence[Operation], pad: int = 0) -> tuple[Transformer, float]:
    """Return a model of another shape, and up to how many tokens a text gives the numbers that it gave before.

    `by`: the operations, one after the other; positions come before what is seen, as a BigBird draws blocks for its
    longest input. `pad`: the padding id. The model that is given stays as it is, but for weights that were rounded in
    loading: both have the stored ones. Raises `InputError` for what cannot be done with this model.
    """
    refuse_quantized(model, "given another shape")
    model.restore_stored()
    state = ModelState(model.config, model.state_dict(), pad)
    for operation in by:
        has_attention = any(stack.attentions() for stack in state.stacks().values())
        if isinstance(operation, AttentionOperation) and not has_attention:
            raise InputError("the model has no attention", where="--attention", remedy="leave it out")
        if isinstance(operation, AttentionOperation | GroupedHeads):
            refuse_products(state)
        state = CHANGES[type(operation)](state, operation)
    made = rebuild_model(model, state.config, state.weights)
    for tokens in (operation for operation in by if isinstance(operation, Tokens)):
        renumber_defaults(made, tokens.numbers())
    return made, state.same


def refuse_products(state: ModelState) -> None:
    """Raise `InputError` for maps that are products of two matrices, of which no other attention can be made."""
    for path, place in list_places(state.config).items():
        if isinstance(place.inner, Attention) and find_ranks(place.inner):
            raise InputError("the attention has maps that are products of two matrices", where=path,
                             remedy="change the attention before the maps are factorized")


CHANGES: Mapping[type, Callable[[ModelState, Any], ModelState]] = {
    Windows: use_windows, Blocks: use_blocks, RandomFeatures: use_random_features, MixedKeys: use_mixed_keys,
    Hashes: change_hashes, Positions: extend_positions, GroupedHeads: group_heads, Heads: keep_heads,
    Neurons: keep_neurons, Factorize: factorize, Ranks: keep_ranks, Layers: reorder_layers,
    Tokens: keep_tokens, NewTokens: add_tokens}
"""Kind of operation -> what does it."""
