"""Tables of positions: longer by tiling, and counted from another row."""

from __future__ import annotations

import torch
from torch import Tensor

from saucier import config as c
from saucier.adaptation.surgery.config import Positions
from saucier.adaptation.surgery.shape import Shape
from saucier.config import longest_input
from saucier.errors import InputError

TABLES = {"embed": "embed.positions.weight", "decoder_embed": "decoder_embed.positions.weight"}


def extend_positions(shape: Shape, by: Positions) -> Shape:
    """Tile every table of learned positions. Raises `InputError` where there is none, and for fewer than there are.

    The rows before the first token's (RoBERTa's two) are kept once; texts as long as before give the same numbers.
    """
    found = {name: embed for name in TABLES if (embed := getattr(shape.config, name)) is not None
             and isinstance(embed.positions, c.Learned)}
    if not found:
        raise InputError("the model has no table of positions, so there is nothing to extend", where="--positions",
                         remedy="leave it out")
    config, weights, rooms = shape.config, dict(shape.weights), []
    for name, embed in found.items():
        table, room = embed.positions, longest_input(embed.positions)
        assert room is not None, "a table ends"
        if by.length < room:
            raise InputError(f"{by.length} positions are fewer than the {room} that there are", where="--positions",
                             remedy=f"give {room} or more")
        ahead = table.length - room
        weights[TABLES[name]] = tiled(weights[TABLES[name]], ahead, by.length)
        longer = table.model_copy(update={"length": ahead + by.length})
        config = config.model_copy(update={name: embed.model_copy(update={"positions": longer})})
        rooms.append(room)
    if isinstance(config.head, c.EmbeddingHead) and config.head.length is not None:
        config = config.model_copy(update={"head": config.head.model_copy(update={"length": by.length})})
    return shape.put(config, weights, same=min(rooms))


def tiled(table: Tensor, ahead: int, length: int) -> Tensor:
    """Repeat the rows behind the first `ahead`. Shapes: [ahead + N, D] -> [ahead + length, D].

    Source: Beltagy et al. 2020, §5, arXiv:2004.05150.
    """
    rows = table[ahead:]
    return torch.cat([table[:ahead], rows.repeat(-(-length // len(rows)), 1)[:length]])


def count_past_padding(shape: Shape) -> Shape:
    """Count positions as RoBERTa and Longformer do, from behind the padding id on; the vectors stay where they were."""
    positions = shape.config.embed.positions
    if not isinstance(positions, c.Learned) or positions.places != c.InOrder():
        return shape
    table = shape.weights[TABLES["embed"]]
    ahead = table[:1].expand(shape.pad + 1, -1)  # rows of padding, which nothing reads
    moved = positions.model_copy(update={"length": positions.length + shape.pad + 1,
                                         "places": c.SkipPadding(padding=shape.pad)})
    return placed(shape, moved, torch.cat([ahead, table]))


def count_from_zero(shape: Shape) -> Shape:
    """Count positions as BERT and BigBird do, from the first row on; the vectors stay where they were."""
    positions = shape.config.embed.positions
    if not isinstance(positions, c.Learned) or not isinstance(positions.places, c.SkipPadding):
        return shape
    ahead = positions.places.padding + 1
    moved = positions.model_copy(update={"length": positions.length - ahead, "places": c.InOrder()})
    return placed(shape, moved, shape.weights[TABLES["embed"]][ahead:])


def placed(shape: Shape, positions: c.Learned, table: Tensor) -> Shape:
    """Return the shape with another table of the tokens' positions."""
    embed = shape.config.embed.model_copy(update={"positions": positions})
    return shape.put(shape.config.model_copy(update={"embed": embed}),
                     {**shape.weights, TABLES["embed"]: table.contiguous()})
