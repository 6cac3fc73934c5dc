"""`key.sub=value` from the command line, set into a recipe's values before they are checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from saucier.errors import InputError
from saucier.recipes.reading import Path, Source, dotted, read_value

OVERRIDE = re.compile(r"^([A-Za-z_]\w*(?:\.\w+)*)=(.*)$", re.DOTALL)
COMMAND_LINE = "command line"


def is_override(text: str) -> bool:
    """Tell an override from the name of a file; `./a=b.txt` is a file."""
    return OVERRIDE.match(text) is not None


def as_words(changes: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield `key.sub=value` words for nested values; a `kind` comes first, since it begins its section anew."""
    for key, value in sorted(changes.items(), key=lambda item: item[0] != "kind"):
        if isinstance(value, dict) and value:
            yield from as_words(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={json.dumps(value)}"


def apply_overrides(source: Source, overrides: Iterable[str], config: type[BaseModel] | None = None) -> None:
    """Set each `key.sub=value` in turn; the value is read as YAML. Raises `InputError` for what has another form.

    `config`: what the values are of; then a section that is not written out keeps its other defaults.
    """
    for text in overrides:
        found = OVERRIDE.match(text)
        if found is None:
            raise InputError(f"{text!r} is not an override", where=COMMAND_LINE,
                             remedy="write key.sub=value, such as training.steps=200")
        path: Path = tuple(int(part) if part.isdigit() else part for part in found[1].split("."))
        if config is not None:
            write_out(source, path, config)
        assign(source, path, read_value(found[2], where=f"{COMMAND_LINE}: {found[1]}"))


def write_out(source: Source, path: Path, config: type[BaseModel]) -> None:
    """Write out the defaults of the section that a key stands in, where it is missing and the values are whole."""
    section: Any = source.values
    for depth, key in enumerate(path[:-1]):
        if not isinstance(section, dict):
            return
        if section.get(key) is None:
            section |= defaults_at(source, path[:depth + 1], config)
            return
        section = section[key]


def defaults_at(source: Source, path: Path, config: type[BaseModel]) -> dict[Any, Any]:
    """Return the section at a path as the config has it by default, under its key; nothing where there is none."""
    try:
        found: Any = config.model_validate(source.values).model_dump(mode="json")
    except ValidationError:
        return {}
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return {path[-1]: found} if isinstance(found, dict) else {}


def assign(source: Source, path: Path, value: Any) -> None:
    """Set one value. Another `kind` starts its section afresh, since the keys of the old kind mean nothing to it."""
    section: Any = source.values
    for depth, key in enumerate(path[:-1]):
        section = descend(section, key, path[: depth + 1])
    descend(section, path[-1], path)  # refuses a place that cannot be
    if path[-1] == "kind" and section.get("kind") != value:
        section.clear()
    section[path[-1]] = value
    source.lines[path] = COMMAND_LINE


def descend(section: Any, key: str | int, path: Path) -> Any:
    """Go one level down, making a missing section; its keys are checked later with all others."""
    if isinstance(section, dict):
        if section.get(key) is None:
            section[key] = {}
        return section[key]
    if isinstance(section, list) and isinstance(key, int) and key < len(section):
        return section[key]
    raise InputError(f"{dotted(path)}: there is no such place", where=COMMAND_LINE,
                     remedy="`saucier schema` prints every key")
