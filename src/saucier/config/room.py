"""How long a text may be for the positions that a model has tables for."""

from __future__ import annotations

from saucier.config.layers import SelfAttention
from saucier.config.model import Stack, Transformer
from saucier.config.positions import MusicTransformer, RelativeKey, RelativeKeyQuery, Rotary

LIMITED = MusicTransformer | RelativeKey | RelativeKeyQuery | Rotary
"""Positions of an attention that may have a table."""


def stack_room(stack: Stack) -> list[int]:
    """Return the lengths of all tables of positions inside a stack."""
    tables = [stack.layer_positions.length] if stack.layer_positions else []
    inner = [residual.inner for block in stack.blocks() for residual in block.sublayers]
    positions = [part.positions for part in inner if isinstance(part, SelfAttention)]
    return tables + [one.length for one in positions if isinstance(one, LIMITED) and one.length is not None]


def remembered_tokens(config: Transformer) -> int | None:
    """Return how many tokens before a segment a model remembers at most; None where that knows no end."""
    memories = [stack.memory for stack in (config.encoder, config.decoder) if stack and stack.memory]
    return memories[0].length if memories else 0
