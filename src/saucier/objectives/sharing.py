"""What a generator and the model beside it have in common: tables, everything, or tables that follow.

Letters: V vocab, D dim.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saucier.errors import InputError
from saucier.model import Transformer, retie
from saucier.objectives import config as c

Tables = dict[str, Tensor]
"""The weights of an embedding's tables, by name: tokens, positions, segments; those that it has."""
Sharing = c.OwnTables | c.SharedTables | c.SharedAll | c.Disentangled
NAMES = ("tokens", "positions", "segments")


def tables(model: Transformer) -> Tables:
    """Return the tables of an embedding. Shapes: [V, D] each."""
    found = {name: getattr(getattr(model.embed, name), "weight", None) for name in NAMES}
    return {name: table for name, table in found.items() if isinstance(table, nn.Parameter)}


def share(sharing: Sharing, generator: Transformer, model: Transformer) -> None:
    """Give a generator what it has in common with the model. Raises `InputError` for tables of other sizes."""
    match sharing:
        case c.OwnTables():
            return
        case c.SharedTables():
            share_tables(generator, model)
        case c.SharedAll():
            generator.embed, generator.encoder = model.embed, model.encoder
        case c.Disentangled():
            with torch.no_grad():
                for name, table in same_tables(generator, model):
                    table.copy_(tables(model)[name])
    retie(generator)


def share_tables(generator: Transformer, model: Transformer) -> None:
    """Make both read the same tables."""
    for name, _ in same_tables(generator, model):
        setattr(generator.embed, name, getattr(model.embed, name))


def same_tables(generator: Transformer, model: Transformer) -> list[tuple[str, Tensor]]:
    """Return the generator's tables. Raises `InputError` where the model's have other sizes."""
    theirs = tables(model)
    for name, table in (ours := tables(generator)).items():
        if table.shape != theirs[name].shape:
            raise InputError(f"the generator's table of {name} is {tuple(table.shape)}, the model's"
                             f" {tuple(theirs[name].shape)}", where="objective.generator.sharing",
                             remedy="use kind: none, or width: 1")
    return list(ours.items())
