"""What the blocks of a stack see and how it is weighed, how many key-value heads they have, and which layers there are.

Letters: H heads, G groups, E head width, D dim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import lcm

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.operations import (
    Blocks,
    GroupedHeads,
    Hashes,
    Layers,
    MixedKeys,
    RandomFeatures,
    Windows,
)
from saucier.adaptation.surgery.tables import (
    ModelState,
    check_full_encoder,
    count_from_zero,
    count_past_padding,
)
from saucier.checkpoints.fields import put
from saucier.config import longest_input
from saucier.config.base import rewrite_config
from saucier.config.blocks import arrange_blocks
from saucier.config.visibility import build_bigbird_visibility
from saucier.errors import InputError

POOLER, DENSE = "pooler.dense.", "head.transform.dense."


def move_pooler_to_head(state: ModelState) -> ModelState:
    """Move the pooler of a head that labels texts into the head, where RoBERTa and Longformer have it."""
    match state.config.head:
        case c.ClassificationHead(transform=None, pick=c.PickVector(kind="pooled"), dropout=rate) \
                if state.config.pooler == c.Pooler():
            weights = {name.replace(POOLER, DENSE) if name.startswith(POOLER) else name: weight
                       for name, weight in state.weights.items()}
            return state.put(put(state.config, {
                "head.pick": c.PickVector(kind="first"), "pooler": None,
                "head.transform": c.Transform(activation="tanh", norm=None, dropout=rate)}), weights)
        case _:
            return state


def add_pooler(state: ModelState) -> ModelState:
    """Put a pooler on a body that has none, under a head that does not read it, as BigBird's files hold one.

    It gives the first token's vector as it is, through a tanh.
    """
    if state.config.pooler is not None or not isinstance(state.config.head, c.LanguageHead | c.TokenHead | None):
        return state
    like = state.weights["embed.tokens.weight"]
    size = state.config.width
    own = {"pooler.dense.weight": torch.eye(size, dtype=like.dtype, device=like.device),
           "pooler.dense.bias": like.new_zeros(size)}
    return state.put(state.config.model_copy(update={"pooler": c.Pooler()}), {**state.weights, **own})


LOCAL = re.compile(r"(encoder\.blocks\.\d+\.\w+\.inner\.)qkv\.(.+)")


def use_windows(state: ModelState, by: Windows) -> ModelState:
    """Turn an encoder into a Longformer, or let a decoder look back a window only.

    Raises `InputError` for an odd width (an encoder looks as far to both sides) and for attention that is not full.
    """
    if state.config.encoder is None:
        return use_past_windows(state, by)
    check_full_encoder(state)
    if by.width < 2 or by.width % 2:
        raise InputError(f"a window of {by.width} neighbours has no half on each side", where="--attention",
                         remedy=f"give an even number, such as window:{max(2, by.width + 1)}")
    state = move_pooler_to_head(count_past_padding(state))
    config = state.attentions(visibility=c.Window(size=by.width // 2 + 1) | c.Global(otherwise=by.tokens),
                              global_maps=c.GlobalMaps(bias=all(
                                  part.projection.bias for part in state.stacks()["encoder"].attentions())))
    own = {f"{match[1]}global_qkv.{match[2]}": weight.clone() for name, weight in state.weights.items()
           if (match := LOCAL.fullmatch(name))}
    return state.put(config, {**state.weights, **own}, same=by.width // 2 + 1)


def use_past_windows(state: ModelState, by: Windows) -> ModelState:
    """Let each token of a decoder see the last ones before it, and itself."""
    if by.tokens.kind != "no_tokens":
        raise InputError("a decoder has no global tokens: they would see what is to come", where="--global",
                         remedy="leave it out")
    if any(attention.visibility != c.Causal() for attention in state.stacks()["decoder"].attentions()):
        raise InputError("the attention is no plain causal one", where="--attention",
                         remedy="begin with a decoder whose tokens see all before them")
    return state.put(state.attentions(visibility=c.Causal() & c.Window(size=by.width)), same=by.width)


def use_blocks(state: ModelState, by: Blocks) -> ModelState:
    """Turn an encoder into a BigBird. Raises `InputError` for attention that is not full, and without positions."""
    check_full_encoder(state)
    state = add_pooler(count_from_zero(state))
    room = longest_input(state.config.embed.positions)
    if room is None:
        raise InputError("blocks are drawn up to a longest input, and the model knows none", where="--attention",
                         remedy="use window:N")
    seen = build_bigbird_visibility(by.size, by.drawn, room)
    assert isinstance(seen, c.Beyond), "short inputs are seen whole"
    return state.put(state.attentions(visibility=seen), same=seen.length)


def use_random_features(state: ModelState, by: RandomFeatures) -> ModelState:
    """Weigh what is seen by random features; where an attention cannot, building the model says why."""
    return state.put(state.attentions(kernel=c.Favor(features=by.count)), same=0)


def use_mixed_keys(state: ModelState, by: MixedKeys) -> ModelState:
    """Let every token of an encoder see mixtures of keys, each at first the mean of as many neighbours as it takes.

    Raises `InputError` for attention that is not full, without positions, and for more mixtures than positions.
    """
    check_full_encoder(state)
    room = longest_input(state.config.embed.positions)
    if room is None or by.rank > room:
        raise InputError(f"{by.rank} mixtures of {'no known number of' if room is None else room} positions",
                         where="--attention", remedy="give a model with positions, and fewer mixtures than there are")
    config = state.attentions(lambda attention: attention.model_copy(update={
        "kernel": c.LowRank(length=room, rank=by.rank, dropout=getattr(attention.kernel, "dropout", 0.0))}))
    like = state.weights["embed.tokens.weight"]
    group = torch.arange(room) * by.rank // room
    members = (torch.arange(by.rank)[:, None] == group).float()
    maps = (members / members.sum(dim=1, keepdim=True)).to(like)
    own = {f"{match[1]}mixtures.{name}": maps.clone() for weight in state.weights
           if (match := LOCAL.fullmatch(weight)) and match[2] == "weight" for name in ("keys", "values")}
    return state.put(config, {**state.weights, **own}, same=0)


def change_hashes(state: ModelState, by: Hashes) -> ModelState:
    """Sort into other chunks, in other rounds, where attention hashes. Raises `InputError` where none does."""
    kernels = [attention.kernel for stack in state.stacks().values() for attention in stack.attentions()]
    hashing = [kernel.chunks.length for kernel in kernels if isinstance(kernel, c.Hashing)]
    if not hashing:
        raise InputError("no attention of the model hashes: its queries and keys are two maps", where="--attention",
                         remedy="begin with a Reformer, or use window:512")
    multiple = lcm(by.chunk, *(kernel.length for kernel in kernels if isinstance(kernel, c.Chunks)))

    def changed(attention: c.SelfAttention) -> c.SelfAttention:
        match attention.kernel:
            case c.Hashing(chunks=chunks, rounds=rounds):
                return put(attention, {"kernel.rounds": by.rounds or rounds, "kernel.chunks.length": by.chunk,
                                       "kernel.chunks.multiple": chunks.multiple and multiple})
            case c.Chunks(multiple=padded):
                return put(attention, {"kernel.multiple": padded and multiple})
            case _:
                return attention

    return state.put(state.attentions(changed), same=min(by.chunk, *hashing))


MAPS = re.compile(r"(?:encoder|decoder)\.blocks\.\d+\.\w+\.inner\.(qkv|kv|global_qkv)\.(?:weight|bias)")


def group_heads(state: ModelState, by: GroupedHeads) -> ModelState:
    """Pool the heads for keys and values of every attention by their mean.

    Raises `InputError` for heads that do not divide into `count` groups, and where their number differs in the model.
    """
    projections = {node for stack in state.stacks().values() for block in stack.blocks()
                   for residual in block.sublayers
                   if (node := getattr(residual.inner, "projection", None)) is not None}
    if not projections:
        raise InputError("the model has no attention", where="--kv-heads", remedy="leave it out")
    for one in projections:
        heads = one.kv_heads or one.heads
        if heads % by.count:
            divisors = ", ".join(str(count) for count in range(1, heads + 1) if heads % count == 0)
            raise InputError(f"{heads} heads do not divide into {by.count} groups", where="--kv-heads",
                             remedy=f"give one of {divisors}")
        if not one.key_bias:
            raise InputError("keys without the bias that values have cannot be pooled", where="--kv-heads",
                             remedy="leave it out")
    if len({one.widths(state.config.dim) for one in projections}) > 1:
        raise InputError("the attentions of this model have different numbers of heads", where="--kv-heads",
                         remedy="leave it out")
    projection = projections.pop()
    before, after = projection, projection.model_copy(update={"kv_heads": by.count})
    config = state.config.model_copy(update={
        name: rewrite_config(stack, lambda node: node.model_copy(update={"kv_heads": by.count})
                             if isinstance(node, c.Projection) else node) for name, stack in state.stacks().items()})
    weights = {name: pool_heads(weight, match[1], before.widths(state.config.dim), after.widths(state.config.dim))
               if (match := MAPS.fullmatch(name)) else weight for name, weight in state.weights.items()}
    return state.put(config, weights, same=float("inf") if by.count == (before.kv_heads or before.heads) else 0)


def pool_heads(weight: Tensor, kind: str, before: tuple[int, int, int], after: tuple[int, int, int]) -> Tensor:
    """Pool the rows of keys and values of one map. Shapes: [.. + 2·H·E, D] -> [.. + 2·G·E, D], biases likewise."""
    query, key, width = before
    own = [] if kind == "kv" else [weight[:query]]
    parts = weight[-2 * key:].split(key)
    means = [part.unflatten(0, (after[1] // width, -1, width)).mean(dim=1).flatten(0, 1) for part in parts]
    return torch.cat([*own, *means])


def reorder_layers(state: ModelState, by: Layers) -> ModelState:
    """Leave layers of a stack out, or let them come again, each with weights of its own.

    Raises `InputError` for a layer that is not there, and for layers that share weights.
    """
    option, stacks = ("--decoder-layers", "decoder") if by.decoder else ("--layers", "encoder")
    found = state.stacks()
    name = stacks if stacks in found else next(iter(found))
    if by.decoder and len(found) < 2:
        raise InputError("the model has one stack", where=option, remedy="use --layers")
    stack = found[name]
    if not stack.layers.separate:
        raise InputError("the layers share their weights", where=option, remedy="leave it out")
    blocks = stack.blocks()
    if wrong := [one for one in by.order if one >= len(blocks)]:
        raise InputError(f"there is no layer {wrong[0]}: they are numbered from 0 to {len(blocks) - 1}", where=option,
                         remedy=f"such as {option} 0-{len(blocks) - 1}")
    layers = arrange_blocks(tuple(blocks[one] for one in by.order))
    return state.put(put(state.config, {f"{name}.layers": layers}),
                     renumber_layers(state.weights, name, by.order),
                     same=float("inf") if by.order == tuple(range(len(blocks))) else 0)


def renumber_layers(weights: Mapping[str, Tensor], stack: str, order: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the weights with a stack's blocks, and its layers' own positions, in another order."""
    numbered = re.compile(rf"({stack}\.(?:blocks|positions)\.)(\d+)(\..+)")
    matches = {name: numbered.fullmatch(name) for name in weights}
    kept = {name: weights[name] for name, match in matches.items() if match is None}
    return kept | {f"{match[1]}{place}{match[3]}": weights[name] for name, match in matches.items() if match is not None
                   for place, number in enumerate(order) if number == int(match[2])}
