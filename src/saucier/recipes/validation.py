"""Validation errors turned into lines that a person can act on, such as

`file.yaml:12: training.stepz: unknown key; did you mean 'steps'?`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from saucier.config import Transformer
from saucier.config.registry import registered_kinds
from saucier.errors import InputError, suggest_name
from saucier.recipes.recipe import TREE
from saucier.recipes.source import KeyPath, Source, join_path

Schema = dict[str, Any]
MISSING = re.compile(r"(\w+): is missing; ")


C = TypeVar("C", bound=BaseModel)


def validate_config(source: Source, config: type[C]) -> C:
    """Return the typed config that a source says. Raises `InputError`, a line for each fault."""
    try:
        return config.model_validate(source.values)
    except ValidationError as error:
        raise to_input_error(error, source, config) from error


def to_input_error(error: ValidationError, source: Source, config: type[BaseModel]) -> InputError:
    """Return one error with a line for each fault."""
    schema = json_schema_of(config, registered_kinds())
    faults = error.errors(include_url=False)
    # a list that is too short only because what is in it is wrong: the other line is enough
    lines = [format_fault(dict(one), source, schema) for one in faults
             if one["type"] != "too_short" or not any(len(other["loc"]) > len(one["loc"])
                                                      and other["loc"][:len(one["loc"])] == one["loc"]
                                                      for other in faults)]
    first, *more = [one for one in lines if not is_misspelt(one, lines)]
    return InputError(first, more=more)


def describe_config_fault(kind: type[BaseModel], values: dict[str, Any],
                          error: ValidationError) -> tuple[str, str, str]:
    """Return what is wrong with the arguments of a config that Python code makes, where, and the remedy."""
    faults = error.errors(include_url=False)  # a misspelt key is missing as well
    fault = dict(next((one for one in faults if one["type"] == "extra_forbidden"), faults[0]))
    path = path_of(cast(KeyPath, fault["loc"]), values, missing=fault["type"] == "missing")
    what, remedy = explain_fault(fault, path, {"$defs": {}, **json_schema_of(kind)})
    return what, join_path((kind.__name__, *path)), remedy


@cache
def json_schema_of(config: type[BaseModel], outside: tuple[str, ...] = ()) -> Schema:
    """Return the JSON Schema of a config: made once, since that of a recipe takes more than a second.

    `outside`: the kinds from outside that are registered now, which it knows too.
    """
    return config.model_json_schema()


def is_misspelt(one: str, lines: list[str]) -> bool:
    """Whether a missing key is there under a wrong name, so that one line is enough for both."""
    found = MISSING.search(one)
    return found is not None and any(f"did you mean {found[1]!r}?" in other for other in lines)


def format_fault(fault: dict[str, Any], source: Source, schema: Schema) -> str:
    """Say what is wrong, where it was written, and what would be right."""
    path = path_of(fault["loc"], source.values, missing=fault["type"] == "missing")
    what, remedy = explain_fault(fault, path, schema)
    if fault["type"] == "missing" and path[-1] == "kind":
        path = path[:-1]
    if fault["type"] in ("union_tag_invalid", "package_missing"):
        path = (*path, "family" if path == ("model",) else "kind")
    head = ": ".join(part for part in (source.where(path), join_path(path), what) if part)
    return f"{head}; {remedy}" if remedy else head


def explain_fault(fault: dict[str, Any], path: KeyPath, schema: Schema) -> tuple[str, str]:
    """Return what is wrong, and the remedy."""
    value = fault.get("input")
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key", suggest_name(str(path[-1]), [key for found in nodes_at(fault["loc"][:-1], schema)
                                                               for key in found.get("properties", {})])
        case "missing" if path[-1] == "kind":
            kinds = sorted(kind for found in nodes_at(fault["loc"], schema) for kind in found["enum"])
            return "says no kind", f"add `kind:`, one of {', '.join(kinds)}"
        case "missing":
            return "is missing", "add it"
        case "union_tag_not_found":
            tags = [str(tag) for found in nodes_at(fault["loc"], schema) for tag in union_members(found)]
            return "says no kind", f"add `kind:`, one of {', '.join(tags)}"
        case "union_tag_invalid":
            tag, known = fault["ctx"]["tag"], fault["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"there is no {tag!r}", suggest_name(tag, known)
        case "package_missing":
            return fault["ctx"]["what"], fault["ctx"]["remedy"]
        case "literal_error":
            what = f"there is no {value!r}" if path[-1] == "kind" else f"unknown choice {value!r}"
            known = fault["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return what, suggest_name(str(value), known)
        case _:
            message = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
            return message if isinstance(value, dict) else f"{message}, not {shorten_value(value)}", ""


def shorten_value(value: Any) -> str:
    """Show a wrong value, cut when it is long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def path_of(location: KeyPath, values: Any, *, missing: bool) -> KeyPath:
    """Leave out of an error's location the tags of unions, which are not written as keys.

    `missing`: the last part is a key that is not there.
    """
    path: list[str | int] = []
    for index, part in enumerate(location):
        inside = (isinstance(values, dict) and part in values) or (isinstance(values, list) and isinstance(part, int))
        # the tag of a union, although a key next to it has the same name
        tag = isinstance(values, dict) and values.get("kind") == part and any(
            after in values for after in location[index + 1:index + 2])
        inside = inside and not tag
        if inside:
            values = values[part]
        if inside or (missing and index == len(location) - 1):
            path.append(part)
    return tuple(path)


def union_members(node: Schema) -> Mapping[str | int, str]:
    """Return the members of a union by their tags; none of what is no such union."""
    return dict(node.get("discriminator", {}).get("mapping", {}))


def nodes_at(location: KeyPath, schema: Schema) -> list[Schema]:
    """Follow a location, tags included, through a JSON Schema."""
    nodes = [schema]
    for part in location:
        nodes = [child for node in nodes for child in child_nodes(node, part, schema["$defs"])]
    return [variant for node in nodes for variant in node_variants(node, schema["$defs"])]


def child_nodes(node: Schema, part: str | int, definitions: dict[str, Schema]) -> Iterator[Schema]:
    """Yield what is below a node: the union's member with that tag, or else the property or the list item of that name.

    A location names the member before anything inside it, also where another member has a property of that name.
    """
    below = list(node_variants(node, definitions))
    if tagged := [union_members(union)[part] for union in below if part in union_members(union)]:
        yield from (definitions[one.rpartition("/")[2]] for one in tagged)
        return
    for variant in below:
        if part in variant.get("properties", {}):
            yield variant["properties"][part]
        elif isinstance(part, int) and "items" in variant:
            yield variant["items"]
        tags = [variant.get("properties", {}).get(key, {}).get("const") for key in ("kind", "family")]
        if (part == TREE and variant.get("title") == Transformer.__name__) or part in tags:
            yield variant


def node_variants(node: Schema, definitions: dict[str, Schema]) -> Iterator[Schema]:
    """Yield a node itself and all that it may be instead: references followed, unions opened."""
    yield node
    if "$ref" in node:
        yield from node_variants(definitions[node["$ref"].rpartition("/")[2]], definitions)
    for key in ("anyOf", "oneOf", "allOf"):
        for member in node.get(key, ()):
            yield from node_variants(member, definitions)
