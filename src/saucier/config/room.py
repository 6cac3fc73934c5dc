"""How long a text may be for the tables of positions that a model has, and for the maps that mix its keys."""

from __future__ import annotations

from saucier.config.low_rank import LowRank
from saucier.config.model import Stack, Transformer
from saucier.config.positions import MusicTransformer, RelativeKey, RelativeKeyQuery, Rotary

LIMITED = MusicTransformer | RelativeKey | RelativeKeyQuery | Rotary
"""Positions of an attention that may have a table."""


def stack_room(stack: Stack) -> list[int]:
    """Return the lengths of all tables of positions inside a stack, and of the maps along the length of a text."""
    tables = [stack.layer_positions.length] if stack.layer_positions else []
    parts = stack.attentions()
    tables += [part.kernel.length for part in parts if isinstance(part.kernel, LowRank)]
    positions = [part.positions for part in parts]
    return tables + [one.length for one in positions if isinstance(one, LIMITED) and one.length is not None]


def remembered_tokens(config: Transformer) -> int | None:
    """Return how many tokens before a segment a model remembers at most; None where that knows no end."""
    memories = [stack.memory for stack in (config.encoder, config.decoder) if stack and stack.memory]
    return memories[0].length if memories else 0
