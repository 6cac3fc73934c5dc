"""Counting sublayers from their config: attention with its maps, positions and kernel, and recurrent layers.

FLOPs are forward, per token, one multiply-add = 2, matrix products alone.
"""

from __future__ import annotations

from dataclasses import replace

from saucier.config.counting import Node, group_nodes, linear
from saucier.config.layers import SelfAttention
from saucier.config.recurrent import (
    GRU,
    Bahdanau,
    ConcatScore,
    DeepOutput,
    FromLastLayer,
    FromMean,
    GeneralScore,
    LocalPredictive,
    Luong,
    Recurrent,
)


def attention_nodes(part: SelfAttention, dim: int, length: int) -> list[Node]:
    """Return the parts of a self-attention in a sequence of `length` tokens."""
    query, key, _ = part.projection.widths(dim)
    nodes = [*part.kernel.map_nodes(part, dim), *part.positions.nodes(part.projection, dim)]
    if part.global_maps:  # their keys and values are made of all tokens, their queries of few
        maps = linear("global_qkv", dim, query + 2 * key, bias=part.global_maps.bias)
        nodes.append(replace(maps, flops=4.0 * dim * key))
    return [*nodes, *part.kernel.nodes(part, dim, length),
            linear("out", query, dim, bias=part.projection.output_bias)]


def recurrent_nodes(part: Recurrent, dim: int, length: int) -> list[Node]:
    """Return the parts of a recurrent sublayer of width `dim` beside a source of `length` tokens."""
    first = cell_node(part, dim, fed=dim if part.fed else 0)
    nodes = [group_nodes("layer 1", part.direction.kind, [first], times=len(part.ways))]
    if part.layers > 1:
        rest = group_nodes("layer", part.direction.kind, [cell_node(part, dim)], times=len(part.ways))
        nodes.append(group_nodes("layers above", part.direction.kind, [rest], times=part.layers - 1))
    if isinstance(part.start, FromLastLayer | FromMean):
        begin = linear("begin", dim, sum(part.all_states(dim)), bias=True)
        nodes.append(replace(begin, flops=0.0, detail="once a sequence"))
    return nodes + (alignment_nodes(part.attention, dim, length) if part.attention else [])


def cell_node(part: Recurrent, dim: int, fed: int = 0) -> Node:
    """Return one cell; `fed`: width of what enters beside the token."""
    width, gates, bias = part.width(dim), part.gates(dim), part.cell.bias
    maps = [linear("input", part.inputs(dim), gates, bias=bias),
            linear("hidden", width, gates, bias=bias and isinstance(part.cell, GRU))]
    maps += [linear("feed", fed, gates, bias=False)] if fed else []
    maps += [linear("project", part.cells(dim), width, bias=False)] if part.projected else []
    return group_nodes("cell", part.cell.kind, maps, detail=f"{part.cells(dim)} units")


def alignment_nodes(attention: Bahdanau | Luong, dim: int, length: int) -> list[Node]:
    """Return the attention of a recurrent sublayer; what is made of the source is counted for each of its tokens."""
    nodes: list[Node] = []
    match attention.score:
        case ConcatScore(width=width):
            wide = width or dim
            nodes += [linear("query", dim, wide, bias=False), linear("source", dim, wide, bias=False),
                      Node("weigh", "linear", f"{length} places a token", f"{wide} → 1", wide, 2.0 * length * wide)]
        case GeneralScore():
            nodes += [linear("query", dim, dim, bias=False), score_node(dim, length)]
        case _:
            nodes.append(score_node(dim, length))
    nodes.append(Node("mix", attention.kind, f"{length} places a token", flops=2.0 * length * dim))
    match attention:
        case Bahdanau(readout=DeepOutput()):
            nodes.append(linear("combine", 3 * dim, 2 * dim, bias=True))
        case Luong(reach=reach):
            nodes.append(linear("combine", 2 * dim, dim, bias=False))
            if isinstance(reach, LocalPredictive):
                wide = reach.width or dim
                nodes += [linear("centre up", dim, wide, bias=False), linear("centre down", wide, 1, bias=False)]
    return nodes


def score_node(dim: int, length: int) -> Node:
    """Return inner products with every place of the source."""
    return Node("scores", "dot", f"{length} places a token", flops=2.0 * length * dim)
