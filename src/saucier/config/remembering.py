"""A memory of another length."""

from __future__ import annotations

from saucier.config.base import Config
from saucier.config.model import Stack, Transformer
from saucier.config.recurrence import SegmentMemory
from saucier.config.rewriting import rewritten
from saucier.config.visibility import Window
from saucier.errors import InputError


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

    def change(node: Config) -> Config:
        match node:
            case SegmentMemory():
                return node.model_copy(update={"length": length})
            case Window(size=size) if size == old:
                return node.model_copy(update={"size": length})
            case _:
                return node

    return rewritten(stack, change)
