"""Counting a self-attention from its config: its maps, its tables of positions, and what its kernel does.

FLOPs are forward, per token, one multiply-add = 2, matrix products alone.
"""

from __future__ import annotations

from dataclasses import replace

from saucier.config.anatomy import Node, linear
from saucier.config.chunks import Chunks, Hashing, chunk_keys, hash_products
from saucier.config.disentangled import Disentangled, OwnMaps
from saucier.config.favor import Favor, feature_flops, mixing_flops
from saucier.config.layers import Projection, SelfAttention
from saucier.config.low_rank import LowRank
from saucier.config.positions import GlobalLocal, MusicTransformer, RelativeKey, RelativeKeyQuery, Shaw, TransformerXL
from saucier.config.visibility import is_causal, visible_keys


def attention_nodes(part: SelfAttention, dim: int, length: int) -> list[Node]:
    """Return the parts of a self-attention in a sequence of `length` tokens."""
    if isinstance(part.kernel, Hashing):
        return hashing_nodes(part, part.kernel, dim, length)
    query, key, _ = part.projection.widths(dim)
    keys = chunk_keys(part.kernel, length) if isinstance(part.kernel, Chunks) else visible_keys(part.visibility, length)
    maps = linear("qkv", dim, query + 2 * key, bias=part.projection.bias)
    if part.projection.bias and not part.projection.key_bias:
        maps = replace(maps, detail="keys without bias", parameters=maps.parameters - key)
    nodes = [maps, *position_nodes(part, dim)]
    if part.global_maps:  # their keys and values are made of all tokens, their queries of few
        maps = linear("global_qkv", dim, query + 2 * key, bias=part.global_maps.bias)
        nodes.append(replace(maps, flops=4.0 * dim * key))
    if isinstance(part.kernel, Favor):
        return [*nodes, *feature_nodes(part, part.kernel, dim, length),
                linear("out", query, dim, bias=part.projection.output_bias)]
    if isinstance(part.kernel, LowRank):
        nodes += mixture_nodes(part.kernel, key)
        keys = part.kernel.rank
    nodes.append(
        Node("scores", part.kernel.kind, f"{keys:g} keys a query, {part.visibility.kind}", flops=4.0 * keys * query)
    )
    return [*nodes, linear("out", query, dim, bias=part.projection.output_bias)]


def feature_nodes(part: SelfAttention, kernel: Favor, dim: int, length: int) -> list[Node]:
    """Return the parts of an attention by random features."""
    query, key, head = part.projection.widths(dim)
    mixing = mixing_flops(kernel, query, head, length=length, causal=is_causal(part.visibility))
    return [Node("features", kernel.kind, f"{kernel.features} a head", flops=feature_flops(kernel, query, key, head)),
            Node("sums", kernel.kind, part.visibility.kind, flops=mixing)]


def mixture_nodes(kernel: LowRank, width: int) -> list[Node]:
    """Return the maps along the text that mix keys and values, `width` of each for a token."""
    found = Node("mixtures", kernel.kind, "the stack's map", flops=4.0 * kernel.rank * width)
    if kernel.maps:
        shape = f"{kernel.maps} × {kernel.length} → {kernel.rank}"
        found = replace(found, detail=kernel.sharing.kind.replace("_", " "), shape=shape,
                        parameters=kernel.maps * kernel.length * kernel.rank)
    return [found]


def hashing_nodes(part: SelfAttention, kernel: Hashing, dim: int, length: int) -> list[Node]:
    """Return the parts of an attention by hashes, whose queries and keys are one map."""
    width, keys = part.projection.widths(dim)[0], chunk_keys(kernel, length)
    return [linear("qkv", dim, 2 * width, bias=part.projection.bias),
            Node("hashes", kernel.kind, f"{kernel.rounds} a position",
                 flops=2.0 * width * hash_products(kernel, length)),
            Node("scores", kernel.kind, f"{keys:g} keys a query, {part.visibility.kind}", flops=4.0 * keys * width),
            linear("out", width, dim, bias=part.projection.output_bias)]


def position_nodes(part: SelfAttention, dim: int) -> list[Node]:
    """Return the trained tables of a self-attention's positions; a T5 bias belongs to the stack instead."""
    head = part.projection.widths(dim)[2]
    match part.positions:
        case Shaw(max_distance=reach):
            rows = 2 * reach + 1
            return [Node("positions", "shaw", "keys and values", f"2 × {rows} × {head}", 2 * rows * head)]
        case RelativeKey(kind=kind, length=length) | RelativeKeyQuery(kind=kind, length=length):
            rows = 2 * length - 1
            return [Node("positions", kind, "shared by the heads", f"{rows} × {head}", rows * head)]
        case GlobalLocal(labels=rows):
            return [Node("positions", "global_local", "shared by the heads", f"{rows} × {head}", rows * head)]
        case MusicTransformer(length=rows):
            heads = part.projection.heads
            return [Node("positions", "music_transformer", "", f"{heads} × {rows} × {head}", heads * rows * head)]
        case Disentangled() as positions:
            return disentangled_nodes(positions, part.projection, dim)
        case TransformerXL(shared_biases=shared, segments=segments):
            query = part.projection.widths(dim)[0]
            count = dim * query + (0 if shared else 2 * query) + (3 * query if segments else 0)
            return [Node("positions", "transformer_xl", "", f"{dim} → {query}", count)]
        case other:
            return [] if other.kind == "none" else [Node("positions", other.kind)]


def disentangled_nodes(positions: Disentangled, projection: Projection, dim: int) -> list[Node]:
    """Return the maps from the distance table, and the products of every token with its rows.

    The maps themselves run once a pass, over the table, and are not counted per token.
    """
    width, nodes = projection.widths(dim)[0], []
    if isinstance(positions.maps, OwnMaps):
        if positions.content_to_position:
            nodes.append(linear("distance_key", dim, width, bias=positions.maps.key_bias))
        if positions.position_to_content:
            nodes.append(linear("distance_query", dim, width, bias=True))
    nodes = [replace(node, flops=0.0, detail="once a pass") for node in nodes]
    work = 2.0 * positions.distances.rows * width * (positions.terms - 1)
    return [*nodes, Node("distance scores", "disentangled", f"{positions.distances.rows} rows", flops=work)]
