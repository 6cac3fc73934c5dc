"""Fewer heads in single attentions, fewer hidden activations in single feed-forwards: what stays keeps its numbers.

Letters: H heads, G key-value heads, E head width, D dim, N hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.operations import Heads, KeptUnits, Neurons
from saucier.adaptation.surgery.tables import ModelState
from saucier.checkpoints.fields import put
from saucier.config.base import rewrite_config
from saucier.config.blocks import arrange_blocks
from saucier.config.questions import name_sublayers
from saucier.config.registry import is_outside
from saucier.errors import InputError, suggest_name

Attention = c.SelfAttention | c.CrossAttention
Feeding = c.FeedForward | c.GatedFeedForward


@dataclass(frozen=True, slots=True)
class Place:
    """A sublayer of a stack, and where it is."""

    stack: str
    layer: int
    number: int
    """Among the sublayers of its block."""
    inner: c.Config
    dim: int
    """Width of what it reads."""


def list_places(config: c.Transformer) -> dict[str, Place]:
    """Return every sublayer of the stacks by its name in the built model; layers that share weights once."""
    found = {}
    for name, dim in (("encoder", config.reader_dim), ("decoder", config.dim)):
        stack = getattr(config, name)
        for layer, block in enumerate(stack.layers.stored() if stack else ()):
            inside = "inside." if block.bottleneck else ""
            for number, (part, one) in enumerate(name_sublayers(block).items()):
                width = dim if isinstance(one.inner, c.CrossAttention) else block.width(dim)
                found[f"{name}.blocks.{layer}.{inside}{part}"] = Place(name, layer, number, one.inner, width)
    return found


def find_places(state: ModelState, kept: KeptUnits, kinds: UnionType, what: str,
                field: str = "kept") -> dict[str, Place]:
    """Return the sublayers that are named. Raises `InputError` for one that there is not, or of another kind.

    Also refused are layers that share weights, among themselves or with the other stack: what one loses, all lose.
    """
    known = {path: place for path, place in list_places(state.config).items() if isinstance(place.inner, kinds)}
    if not known:
        raise InputError(f"the model has no sublayers with {what}", where=field, remedy="leave it out")
    for path in kept:
        if path not in known:
            raise InputError(f"there is no sublayer with {what} at {path}", where=f"{field}.{path}",
                             remedy=suggest_name(path, [*known]))
        stack = state.stacks()[known[path].stack]
        if not stack.layers.separate or (state.config.decoder is not None and state.config.decoder.tied):
            raise InputError("the layers share their weights", where=f"{field}.{path}",
                             remedy="prune whole layers, or a model whose layers have weights of their own")
    return {path: known[path] for path in kept}


def check_numbers(path: str, numbers: Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Return the numbers in their order. Raises `InputError` for one that is not there, and where none stays."""
    if wrong := [one for one in numbers if one >= count]:
        raise InputError(f"there is no {what} {wrong[0]}: they are numbered from 0 to {count - 1}",
                         where=f"kept.{path}", remedy="give numbers of those")
    if not numbers or len(set(numbers)) < len(numbers):
        raise InputError(f"no {what} stays" if not numbers else f"a {what} is named twice", where=f"kept.{path}",
                         remedy="keep at least one, or leave the whole layer out" if not numbers else "name each once")
    return tuple(sorted(numbers))


def put_inner(state: ModelState, changed: Mapping[str, tuple[Place, c.Config]]) -> c.Transformer:
    """Return the config with other sublayers at some places, each block with its own shape."""
    config = state.config
    for name, stack in state.stacks().items():
        if any(place.stack == name for place, _ in changed.values()):
            blocks = stack.blocks()
            for place, inner in changed.values():
                if place.stack == name:
                    blocks[place.layer] = put(blocks[place.layer], {f"sublayers.{place.number}.inner": inner})
            config = put(config, {f"{name}.layers": arrange_blocks(tuple(blocks))})
    return config


def keep_neurons(state: ModelState, by: Neurons) -> ModelState:
    """Leave out hidden activations. Raises `InputError` as `find_places` and `check_numbers` do."""
    changed: dict[str, tuple[Place, c.Config]] = {}
    weights, same = dict(state.weights), float("inf")
    for path, place in find_places(state, by.kept, Feeding, "neurons").items():
        inner = place.inner
        assert isinstance(inner, Feeding), "find_places gives no other"
        numbers = check_numbers(path, by.kept[path], inner.hidden, "neuron")
        gated = isinstance(inner, c.GatedFeedForward)
        rows = [*numbers, *(inner.hidden + one for one in numbers if gated)]
        for name, dim, index in (("up.weight", 0, rows), ("up.bias", 0, rows), ("down.weight", 1, numbers)):
            select(weights, f"{path}.inner.{name}", dim, index)
        changed[path] = place, inner.model_copy(update={"hidden": len(numbers)})
        same = same if len(numbers) == inner.hidden else 0
    return state.put(put_inner(state, changed), weights, same=same)


def select(weights: dict[str, Tensor], name: str, dim: int, index: Sequence[int]) -> None:
    """Keep some rows of a weight, in place of it, where there is such a weight.

    A map that is a product of two matrices has its inputs in the first one and its outputs in the second.
    """
    module, _, end = name.rpartition(".")
    for one in (name, f"{module}.{'first' if dim else 'second'}.{end}"):
        if one in weights:
            found = weights[one]
            weights[one] = found.index_select(dim, torch.tensor(index, device=found.device))


def keep_heads(state: ModelState, by: Heads) -> ModelState:
    """Leave out heads. Raises `InputError` as `find_places` and `check_numbers` do, and for what cannot be exact.

    That is: heads that share keys and values in groups of which unequal numbers would be left, hashes and parts from
    outside, which may know a head by its number, and Transformer-XL's biases where layers that share them would keep
    different heads.
    """
    changed: dict[str, tuple[Place, c.Config]] = {}
    weights, same = dict(state.weights), float("inf")
    for path, place in find_places(state, by.kept, Attention, "heads").items():
        inner = place.inner
        assert isinstance(inner, Attention), "find_places gives no other"
        heads = inner.projection.heads
        numbers = check_numbers(path, by.kept[path], heads, "head")
        if len(numbers) < heads:
            check_heads_apart(path, inner)
            cut_attention(weights, f"{path}.inner.", inner, numbers, place.dim)
            changed[path], same = (place, shrink_attention(path, inner, numbers, place.dim)), 0
    found = state.put(put_inner(state, changed), weights, same=same)
    for name in state.stacks():
        found = share_biases(cut_t5_table(found, name), name, {
            path: by.kept[path] for path, (place, _) in changed.items() if place.stack == name})
    return found


def check_heads_apart(path: str, attention: Attention) -> None:
    """Raise `InputError` for an attention of which a single head cannot be taken out exactly."""
    kinds = [attention.kernel.kind, *([attention.positions.kind] if isinstance(attention, c.SelfAttention) else [])]
    for kind in kinds:
        if isinstance(attention.kernel, c.Hashing) or is_outside(kind):
            raise InputError(f"heads of an attention with {kind} are not known to be independent",
                             where=f"kept.{path}", remedy="keep all its heads")


def keep_groups(path: str, projection: c.Projection, numbers: Sequence[int]) -> list[int]:
    """Return the key-value heads that stay: those that a head reads. Raises `InputError` for unequal groups."""
    size = projection.heads // (projection.kv_heads or projection.heads)
    groups = [one // size for one in numbers]
    if len({groups.count(one) for one in groups}) > 1:
        raise InputError(f"heads share keys and values in groups of {size}, of which unequal numbers would be left",
                         where=f"kept.{path}", remedy="keep whole groups, or as many heads of each group that stays")
    return list(dict.fromkeys(groups))


def shrink_attention(path: str, attention: Attention, numbers: Sequence[int], dim: int) -> Attention:
    """Return an attention's config with some of its heads."""
    before = attention.projection
    groups = keep_groups(path, before, numbers)
    projection = before.model_copy(update={
        "heads": len(numbers), "head_dim": before.widths(dim)[2],
        "kv_heads": None if before.kv_heads is None else len(groups)})
    if isinstance(attention, c.CrossAttention):
        return attention.model_copy(update={"projection": projection})
    positions = attention.positions
    if isinstance(positions, c.T5Bias | c.Alibi):
        had = c.KeptHeads(of=before.heads, numbers=tuple(range(before.heads))) if positions.kept is None \
            else positions.kept
        positions = positions.model_copy(update={"kept": had.model_copy(update={
            "numbers": tuple(had.numbers[one] for one in numbers)})})

    def of_kept(node: c.Config) -> c.Config:
        if isinstance(node, c.Combined) and node.kind == "by_head":
            return node.model_copy(update={"terms": tuple(node.of_head(one, before.heads) for one in numbers)})
        return node

    return attention.model_copy(update={"projection": projection, "positions": positions,
                                        "visibility": rewrite_config(attention.visibility, of_kept)})


def spread(numbers: Sequence[int], width: int) -> list[int]:
    """Return the rows of some heads, each so many."""
    return [head * width + row for head in numbers for row in range(width)]


HEAD_TABLES = {"positions.biases.content": 0, "positions.biases.place": 0, "positions.segment_bias": 0,
               "positions.segments": 1, "convolution.weight": 0}
"""Weights with a row for each head -> the dimension of the heads; MusicTransformer's table has the name of others'."""
HEAD_MAPS = ("positions.map.weight", "positions.key.weight", "positions.key.bias", "positions.query.weight",
             "positions.query.bias", "q.weight", "q.bias")
"""Weights with the rows of all heads one after the other."""


def cut_attention(weights: dict[str, Tensor], prefix: str, attention: Attention, numbers: Sequence[int],
                  dim: int) -> None:
    """Keep the rows and columns of some heads, in place. Shapes: [.. + H·E + 2·G·E, D] -> fewer; out [D, H·E]."""
    projection = attention.projection
    query, key, width = projection.widths(dim)
    rows, pairs = spread(numbers, width), spread(keep_groups(prefix, projection, numbers), width)
    select(weights, f"{prefix}out.weight", 1, rows)
    for name in HEAD_MAPS:
        select(weights, prefix + name, 0, rows)
    for name, place in HEAD_TABLES.items():
        select(weights, prefix + name, place, numbers)
    if isinstance(attention, c.SelfAttention) and isinstance(attention.positions, c.MusicTransformer):
        select(weights, f"{prefix}positions.weight", 0, numbers)
    biased = (not isinstance(attention, c.SelfAttention) or attention.positions.query_bias, projection.key_bias, True)
    parts = [(query, rows), (key, pairs), (key, pairs)]
    for name, first, end in (("qkv", 0, 3), ("global_qkv", 0, 3), ("qkv.query_key", 0, 2), ("qkv.value", 2, 3),
                             ("kv", 1, 3)):
        select(weights, f"{prefix}{name}.weight", 0, [*offset_rows(parts[first:end])])
        has = [True] * 3 if name == "global_qkv" else biased
        select(weights, f"{prefix}{name}.bias", 0, [*offset_rows(
            [part for part, one in zip(parts[first:end], has[first:end], strict=True) if one])])


def offset_rows(parts: Sequence[tuple[int, Sequence[int]]]) -> Iterator[int]:
    """Yield the rows that stay of several maps, one after the other; each part is (all its rows, those that stay)."""
    start = 0
    for size, rows in parts:
        yield from (start + row for row in rows)
        start += size


def cut_t5_table(state: ModelState, name: str) -> ModelState:
    """Take the columns out of a stack's T5 table that none of its attentions reads, where all read the same."""
    stack = state.stacks()[name]
    positions = [one.positions for one in stack.attentions() if isinstance(one.positions, c.T5Bias)]
    kept = {one.kept for one in positions}
    if len(kept) != 1 or (chosen := kept.pop()) is None:
        return state
    weights = dict(state.weights)
    select(weights, f"{name}.shared.weight", 1, chosen.numbers)
    whole = rewrite_config(stack, lambda node: node.model_copy(update={"kept": None})
                           if isinstance(node, c.T5Bias) else node)
    return state.put(put(state.config, {name: whole}), weights)


def share_biases(state: ModelState, name: str, kept: KeptUnits) -> ModelState:
    """Take heads out of the biases that the layers of a stack share (Transformer-XL), where all lose the same ones."""
    shared = [f"{name}.biases.{part}" for part in ("content", "place")]
    if not kept or shared[0] not in state.weights:
        return state
    if len({tuple(sorted(one)) for one in kept.values()}) > 1 or len(kept) < len(state.stacks()[name].attentions()):
        raise InputError("the layers share a pair of biases, and would keep different heads",
                         where=f"kept.{next(iter(kept))}", remedy="keep the same heads in every layer")
    weights = dict(state.weights)
    for one in shared:
        select(weights, one, 0, sorted(next(iter(kept.values()))))
    return state.put(state.config, weights)
