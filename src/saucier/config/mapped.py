"""A config tree with some of its nodes replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from saucier.config.base import Config
from saucier.config.model import Stack, Transformer
from saucier.config.recurrence import SegmentMemory
from saucier.config.visibility import Window
from saucier.errors import InputError

Change = Callable[[Any], Any]
"""A node to what stands in its place; itself where nothing is to change."""
T = TypeVar("T")


def mapped(node: T, change: Change) -> T:
    """Return a tree in which every config is replaced by what `change` gives for it, the inner ones first."""
    if isinstance(node, tuple):
        return tuple(mapped(one, change) for one in node)  # type: ignore[return-value]  # a tuple of the same things
    if not isinstance(node, Config):
        return node
    found = {name: getattr(node, name) for name in type(node).model_fields}
    new = {name: made for name, value in found.items() if (made := mapped(value, change)) is not value}
    changed = {name: value for name, value in new.items() if value != found[name]}
    return change(node.model_copy(update=changed) if changed else node)  # type: ignore[no-any-return]


def with_memory(config: Transformer, length: int) -> Transformer:
    """Return a model that remembers `length` tokens, and whose windows over its memory are as long.

    Its weights stay as they are: positions are relative. Raises `InputError` for a model without a memory.
    """
    stacks = {name: stack for name in ("encoder", "decoder") if (stack := getattr(config, name)) and stack.memory}
    if not stacks:
        raise InputError("the model has no memory", where="memory", remedy="leave it out")
    return config.model_copy(update={name: longer(stack, length) for name, stack in stacks.items()})


def longer(stack: Stack, length: int) -> Stack:
    """Return a stack with a memory of this length."""
    assert stack.memory is not None, "asked of stacks with one"
    old = stack.memory.length

    def change(node: Any) -> Any:
        match node:
            case SegmentMemory() | Window() if (node.length if isinstance(node, SegmentMemory) else node.size) == old:
                return node.model_copy(update={"length" if isinstance(node, SegmentMemory) else "size": length})
            case _:
                return node

    return mapped(stack, change)
