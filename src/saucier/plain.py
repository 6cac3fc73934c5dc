"""Plain values, as JSON holds them: the first place where two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Difference = tuple[str, Any, Any]
"""The path of keys, and the value at each side; None where there is none."""


def first_difference(left: Any, right: Any, path: str = "") -> Difference | None:
    """Find the first place where two values differ; lists are compared one by one where they are as long."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        pairs = [(str(key), left.get(key), right.get(key)) for key in dict.fromkeys([*left, *right])]
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        pairs = [(str(place), *both) for place, both in enumerate(zip(left, right, strict=True))]
    else:
        return None if left == right else (path, left, right)
    found = (first_difference(mine, theirs, f"{path}.{key}" if path else key) for key, mine, theirs in pairs)
    return next((one for one in found if one is not None), None)
