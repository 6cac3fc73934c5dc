"""The values of a YAML file, with the line of every key, so that an error can point at it; and `key.sub=value`
overrides from the command line, set into these values before they are checked.

Only plain data is read: no tags, no aliases, no repeated keys. Words and numbers are those of YAML 1.2: `no` is a
word,
`3e-4` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from saucier.arguments import COMMAND_LINE, OVERRIDE
from saucier.errors import InputError

KeyPath = tuple[str | int, ...]
"""Keys and list places from the top of a recipe down to one value."""

MAX_BYTES = 1_000_000
"""More than any recipe has; keeps a wrong file from being parsed for minutes."""

MAX_SHOWN = 200
"""Letters of a value that an error shows."""
REMEDY = "docs/recipes.md shows the format"


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2; no aliases, by which a small file unfolds to gigabytes."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML reads it so

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next node; refuse an alias."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs leave it out
            raise yaml.composer.ComposerError(problem="aliases (*name) are not used in recipes", problem_mark=mark)
        return super().compose_node(parent, index)


TAG = "tag:yaml.org,2002:"
PlainLoader.add_implicit_resolver(f"{TAG}bool", re.compile(r"^(true|false)$"), list("tf"))
PlainLoader.add_implicit_resolver(f"{TAG}null", re.compile(r"^(~|null|)$"), ["~", "n", ""])
PlainLoader.add_implicit_resolver(f"{TAG}int", re.compile(r"^[-+]?[0-9]+(_[0-9]+)*$"), list("-+0123456789"))
PlainLoader.add_implicit_resolver(
    f"{TAG}float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

SCALARS: dict[str, Callable[[str], Any]] = {
    f"{TAG}str": str, f"{TAG}int": int, f"{TAG}float": float, f"{TAG}bool": lambda text: text == "true",
    f"{TAG}null": lambda text: None,
}
"""How each kind of scalar is read; nothing else is."""


@dataclass(slots=True)
class Source:
    """The values of a recipe, and where each of them was written."""

    name: str
    """The file, or the name of a recipe of ours."""
    values: dict[str, Any]
    lines: dict[KeyPath, str] = field(default_factory=dict)
    """Where a value was written: `file.yaml:12`, or `command line`."""

    def where(self, path: KeyPath) -> str:
        """Return where the value at `path`, or the closest one around it, was written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.name)


def read_yaml(text: str, name: str) -> Source:
    """Parse the text of a recipe. Raises `InputError` with the line of what cannot be read."""
    if len(text) > MAX_BYTES:
        raise InputError("this is too long for a recipe", where=name,
                         remedy="give the recipe here, and text with --data")
    try:
        node = yaml.compose(text, PlainLoader)
        source = Source(name, {})
        values = construct_value(node, (), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise InputError(f"not YAML: {error.problem or error.context}", where=where, remedy=REMEDY) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"not YAML: {str(error).splitlines()[0]}", where=name, remedy=REMEDY) from error
    if not isinstance(values, dict):
        raise InputError("a recipe is made of `key: value` lines", where=f"{name}:1", remedy=REMEDY)
    source.values = values
    return source


def read_value(text: str, where: str) -> Any:
    """Parse the value of an override such as `3e-4`, `[a, b]` or `{kind: muon}`."""
    try:
        return construct_value(yaml.compose(text, PlainLoader), (), Source(where, {}))
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(f"cannot read the value {text[:MAX_SHOWN]!r}", where=where,
                         remedy="put it in quotes, such as key='\"value\"'") from error


def construct_value(node: yaml.Node | None, path: KeyPath, source: Source) -> Any:
    """Turn a parsed node into plain values, remembering the line of everything below it."""
    if node is None:
        return None
    source.lines.setdefault(path, f"{source.name}:{node.start_mark.line + 1}")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in (f"{TAG}map", f"{TAG}seq"):
        raise InputError(f"{join_path(path)}: cannot read {node.tag.removeprefix(TAG)}", where=source.where(path),
                         remedy="leave the tag away")
    if isinstance(node, yaml.MappingNode):
        return construct_mapping(node, path, source)
    if isinstance(node, yaml.SequenceNode):
        return [construct_value(child, (*path, index), source) for index, child in enumerate(node.value)]
    return construct_scalar(node, path, source)


def construct_scalar(node: yaml.Node, path: KeyPath, source: Source) -> Any:
    """Read one word or number."""
    try:
        return SCALARS[node.tag](node.value)
    except (KeyError, ValueError) as error:
        raise InputError(f"{join_path(path)}: cannot read {node.value!r} as {node.tag.removeprefix(TAG)}",
                         where=source.where(path),
                         remedy="leave the tag away") from error


def construct_mapping(node: yaml.MappingNode, path: KeyPath, source: Source) -> dict[str, Any]:
    """Turn a mapping into a dict; its keys are words, each of which occurs once."""
    values: dict[str, Any] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputError("a key is one word", where=f"{source.name}:{line}", remedy=REMEDY)
        here = (*path, key_node.value)
        if key_node.value in values:
            first = source.lines[here].rpartition(":")[2]
            raise InputError(f"{join_path(here)}: stands here a second time, first on line {first}",
                             where=f"{source.name}:{line}", remedy="keep one")
        source.lines[here] = f"{source.name}:{line}"
        values[key_node.value] = construct_value(child, here, source)
    return values


def join_path(path: KeyPath) -> str:
    """Write a path as a person does: `training.optimizer.kind`."""
    return ".".join(str(part) for part in path)


def read_override(text: str) -> tuple[str, Any]:
    """Return the key and the value of `key.sub=value`; the value is read as YAML. Raises `InputError`."""
    found = OVERRIDE.match(text)
    if found is None:
        raise InputError(f"{text!r} is not an override", where=COMMAND_LINE,
                         remedy="write key.sub=value, such as training.steps=200")
    return found[1], read_value(found[2], where=f"{COMMAND_LINE}: {found[1]}")


def apply_overrides(source: Source, overrides: Iterable[str], config: type[BaseModel] | None = None) -> None:
    """Set each `key.sub=value` in turn; the value is read as YAML. Raises `InputError` for what has another form.

    `config`: what the values are of; then a section that is not written out keeps its other defaults.
    """
    for text in overrides:
        key, value = read_override(text)
        path: KeyPath = tuple(int(part) if part.isdigit() else part for part in key.split("."))
        if config is not None:
            write_defaults(source, path, config)
        assign_value(source, path, value)


def write_defaults(source: Source, path: KeyPath, config: type[BaseModel]) -> None:
    """Write out the defaults of the section that a key is in, where it is missing and the values are whole."""
    section: Any = source.values
    for depth, key in enumerate(path[:-1]):
        if not isinstance(section, dict):
            return
        if section.get(key) is None:
            section |= defaults_at(source, path[:depth + 1], config)
            return
        section = section[key]


def defaults_at(source: Source, path: KeyPath, config: type[BaseModel]) -> dict[Any, Any]:
    """Return the section at a path as the config has it by default, under its key; nothing where there is none."""
    try:
        found: Any = config.model_validate(source.values).model_dump(mode="json")
    except ValidationError:
        return {}
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return {path[-1]: found} if isinstance(found, dict) else {}


def assign_value(source: Source, path: KeyPath, value: Any) -> None:
    """Set one value. Another `kind` starts its section afresh, since the keys of the old kind mean nothing to it."""
    section: Any = source.values
    for depth, key in enumerate(path[:-1]):
        section = descend_to(section, key, path[: depth + 1])
    descend_to(section, path[-1], path)  # refuses a place that cannot be
    if path[-1] == "kind" and section.get("kind") != value:
        section.clear()
    section[path[-1]] = value
    source.lines[path] = COMMAND_LINE


def descend_to(section: Any, key: str | int, path: KeyPath) -> Any:
    """Go one level down, making a missing section; its keys are checked later with all others."""
    if isinstance(section, dict):
        if section.get(key) is None:
            section[key] = {}
        return section[key]
    if isinstance(section, list) and isinstance(key, int) and key < len(section):
        return section[key]
    raise InputError(f"{join_path(path)}: there is no such place", where=COMMAND_LINE,
                     remedy="`saucier schema` prints every key")
