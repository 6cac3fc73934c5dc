"""What a file says of tying: an output layer that differs from the token table is one of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from saucier import config as c
from saucier.checkpoints.keys import look_up, put
from saucier.checkpoints.source import Source

if TYPE_CHECKING:
    from saucier.checkpoints.foreign import Names

PLACES = ("head", "head.language")
"""Where a tree may have a language head."""


def as_stored(names: Names, source: Source) -> c.Transformer:
    """Return the tree with its output layer untied, where the files hold another matrix than the token table."""
    place = next((place for place in PLACES if isinstance(look_up(names.tree, place), c.LanguageHead)), None)
    if place is None or not look_up(names.tree, place).tied:
        return names.tree
    untied = names.layout.settle(put(names.tree, f"{place}.tied", False))
    own = replace(names, tree=untied)
    target = names.tree.decoder_embed
    tables = ("decoder_embed", "embed") if target is not None and not target.tied else ("embed",)
    output, table = stored(own, f"{place}.weight", source), stored(own, f"{tables[0]}.tokens.weight", source)
    if output is None or table is None or output == table:
        return names.tree
    first, second = source[output], source[table]
    return names.tree if first.shape == second.shape and torch.equal(first, second) else untied


def stored(names: Names, ours: str, source: Source) -> str | None:
    """Return the name under which the files hold one of our parameters, or the first part of it."""
    match = names.rules.match(ours)
    if match is None:
        return None
    return names.present(match.theirs[0], source) or (match.instead and names.present(match.instead, source)) or None
