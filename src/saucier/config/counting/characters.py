"""Counting a character network: its parameters, and the work of a token."""

from __future__ import annotations

from dataclasses import replace

from saucier.config.anatomy import Node, group, linear
from saucier.config.characters import SYMBOLS, CharacterNetwork


def character_node(network: CharacterNetwork, width: int) -> Node:
    """Return the parts that make a token's vector of `width`."""
    table = Node("characters", "embedding", "bytes and borders", f"{SYMBOLS} × {network.width}",
                 SYMBOLS * network.width)
    filters = []
    for size, count in network.filters:
        places = network.longest - size + 1
        one = linear(f"filters of {size}", size * network.width, count, bias=True)
        filters.append(replace(one, flops=one.flops * places, detail=f"at {places} places"))
    wide = network.features
    highways = [group("highways", "highway", [linear("highway", wide, 2 * wide, bias=True)], times=network.highways)]
    return group("tokens", "characters", [table, *filters, *highways[:network.highways],
                                          linear("project", wide, width, bias=True)])
