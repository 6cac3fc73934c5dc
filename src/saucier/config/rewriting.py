"""Changing a config tree everywhere at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from saucier.config.base import Config

Part = TypeVar("Part", bound=Config)


def rewritten(config: Part, change: Callable[[Config], Config]) -> Part:
    """Return a part of a model with `change` done to every config in it, the innermost first.

    What does not change is the same object as before.
    """
    found = {name: one for name, value in config if (one := _inside(value, change)) is not value}
    return change(config.model_copy(update=found) if found else config)  # type: ignore[return-value]  # the same slot


def _inside(value: Any, change: Callable[[Config], Config]) -> Any:
    if isinstance(value, Config):
        return rewritten(value, change)
    if isinstance(value, tuple):
        found = tuple(_inside(one, change) for one in value)
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found
    return value
