"""From an error at a place of the tree to the error of the config's fields that say what is there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.checkpoints.keys import Key


def by_field(error: InputError, keys: Sequence[Key], said: Mapping[str, tuple[str, Any]], where: str) -> InputError:
    """Return an error about a place of the tree as one about fields of a config; as it is where no field says it.

    `said`: key -> the name that the config has for it, and its value. `where` is the config. The place stands before
    the error, or begins what it says.
    """
    at = str(error.where)
    told = error.what if at == where else f"{at}: {error.what}"
    found = dict(said[key.foreign] for key in keys_of(told, keys))
    if not found:
        return error
    fields = " with ".join(f"{name} {value!r}" for name, value in found.items())
    return InputError(f"{fields} cannot be expressed ({told})", where=where, remedy=error.remedy)


def keys_of(told: str, keys: Sequence[Key]) -> list[Key]:
    """Return the keys nearest to the place that an error begins with, or else those of the values that it speaks of."""
    place = told.partition(":")[0].split(".")
    near = [nearness(key, place) for key in keys]
    nearest = max(near, default=0)
    if nearest:
        return [key for key, found in zip(keys, near, strict=True) if found == nearest]
    words = set(re.findall(r"\w+", told.partition(":")[2]))
    inside = [key for key in keys if any(path.split(".")[-2:-1] == place[-1:] for path in key.paths)]
    alone = [key for key in keys if any("." not in path and path in words for path in key.paths)]
    return [*alone, *(key for key in inside if any(path.split(".")[-1] in words for path in key.paths))]


def nearness(key: Key, place: Sequence[str]) -> int:
    """Say how well the paths of a key fit a place: by every word on the way 3, at both ends 2, at the last word 1."""
    ways = ([word for word in path.split(".") if word != "*"] for path in key.paths)
    return max((1 + (way[0] == place[0]) + within(way, place) for way in ways if way[-1] == place[-1]), default=0)


def within(words: Sequence[str], places: Sequence[str]) -> bool:
    """Say whether words stand among others in their order."""
    rest = iter(places)
    return all(word in rest for word in words)
