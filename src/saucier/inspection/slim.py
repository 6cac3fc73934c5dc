"""A model with the same attentions as another, and little else: no heads, no feed-forwards worth the name, few tokens.

No torch.
"""

from __future__ import annotations

from typing import Any

from saucier import config as c

VOCAB = 1000
"""Tokens that a slim model knows, where no part names one by a higher id."""
NAMED = ("padding", "token", "separator")
"""Keys that hold the id of a token."""
TABLES = ("learned", "sinusoidal")
"""Kinds of positions with a table that is as long as the longest text."""
SPARE = 8
"""Rows that such a table has besides: some are counted from behind the padding's id."""
WITHOUT = {"head": None, "pooler": None, "mix": None, "dropout": 0.0, "noise": 0.0}


Layers = dict[str, list[tuple[int, ...]]]
"""For each stack, and each block of the slim model, the numbers of the blocks that it stands for."""


def slimmed(config: c.Transformer, length: int) -> tuple[c.Transformer, Layers]:
    """Return the slim model, and for each of its blocks, side by side, the blocks of the whole model it stands for.

    Blocks whose attentions are alike are one; tables of positions are made long enough for `length` tokens.
    """
    values = config.model_dump(mode="json")
    layers: Layers = {}
    for side in ("encoder", "decoder"):
        stack: c.Stack | None = getattr(config, side)
        if stack is not None:
            kept, layers[side] = distinct(stack)
            values[side]["layers"] = {"kind": "cycle", "blocks": kept, "times": 1}
    room = max(VOCAB, *(one + 1 for one in named(values)))
    return c.Transformer.model_validate(longer(slim(values, room), length)), layers


def lengthened(config: c.Transformer, length: int) -> c.Transformer:
    """Return a model whose tables of positions are long enough for a text of this length."""
    return c.Transformer.model_validate(longer(config.model_dump(mode="json"), length))


def longer(values: Any, length: int) -> Any:
    """Return plain values of a config with longer tables of positions, where they are shorter."""
    if isinstance(values, list):
        return [longer(one, length) for one in values]
    if not isinstance(values, dict):
        return values
    changed = {key: longer(value, length) for key, value in values.items()}
    if changed.get("kind") in TABLES and isinstance(changed.get("length"), int):
        changed["length"] = max(changed["length"], length + SPARE)
    return changed


def distinct(stack: c.Stack) -> tuple[list[dict[str, Any]], list[tuple[int, ...]]]:
    """Return the blocks of a stack whose self-attentions differ, and the numbers of those that are like each."""
    found: dict[str, list[int]] = {}
    blocks = stack.blocks()
    for number, block in enumerate(blocks):
        parts = [one.inner.model_dump_json() for one in block.sublayers if isinstance(one.inner, c.SelfAttention)]
        found.setdefault("|".join(parts), []).append(number)
    return [blocks[numbers[0]].model_dump(mode="json") for numbers in found.values()], [*map(tuple, found.values())]


def slim(values: Any, room: int) -> Any:
    """Return plain values of a config without what does not take part in attention."""
    if isinstance(values, list):
        return [slim(one, room) for one in values]
    if not isinstance(values, dict):
        return values
    changed = {key: WITHOUT.get(key, slim(value, room)) for key, value in values.items()}
    if changed.get("kind") in ("feed_forward", "gated_feed_forward"):
        changed["hidden"] = 1
    if isinstance(changed.get("vocab"), int):
        changed["vocab"] = min(changed["vocab"], room)
    return changed


def named(values: Any) -> list[int]:
    """Return the ids of tokens that plain values name."""
    if isinstance(values, list):
        return [one for value in values for one in named(value)]
    if not isinstance(values, dict):
        return [0]
    own = [value for key, value in values.items() if key in NAMED and isinstance(value, int)]
    return own + [one for value in values.values() for one in named(value)]
