"""Validation errors turned into lines that a person can act on, such as

`file.yaml:12: training.stepz: unknown key; did you mean 'steps'?`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, Protocol, TypeVar, cast, get_args, get_origin, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from saucier.arguments import UNIONS
from saucier.config.base import Config
from saucier.errors import InputError, suggest_name
from saucier.recipes.source import KeyPath, Source, join_path

MISSING = re.compile(r"(\w+): is missing; ")


C = TypeVar("C", bound=BaseModel)


@runtime_checkable
class OpenUnion(Protocol):
    """Stands in `Annotated` next to a union that has more members than it lists, each known by a tag."""

    def list_tags(self) -> tuple[str, ...]:
        """Return the tags of the members that are not listed."""

    def find_member(self, tag: str) -> type[Config]:
        """Return the member with one of these tags."""


def validate_config(source: Source, config: type[C]) -> C:
    """Return the typed config that a source says. Raises `InputError`, a line for each fault."""
    try:
        return config.model_validate(source.values)
    except ValidationError as error:
        raise to_input_error(error, source, config) from error


def to_input_error(error: ValidationError, source: Source, config: type[BaseModel]) -> InputError:
    """Return one error with a line for each fault."""
    faults = error.errors(include_url=False)
    # a list that is too short only because what is in it is wrong: the other line is enough
    lines = [format_fault(dict(one), source, config) for one in faults
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
    what, remedy = explain_fault(fault, path, kind)
    return what, join_path((kind.__name__, *path)), remedy


def is_misspelt(one: str, lines: list[str]) -> bool:
    """Whether a missing key is there under a wrong name, so that one line is enough for both."""
    found = MISSING.search(one)
    return found is not None and any(f"did you mean {found[1]!r}?" in other for other in lines)


def format_fault(fault: dict[str, Any], source: Source, config: type[BaseModel]) -> str:
    """Say what is wrong, where it was written, and what would be right."""
    path = path_of(fault["loc"], source.values, missing=fault["type"] == "missing")
    what, remedy = explain_fault(fault, path, config)
    if fault["type"] == "missing" and path[-1] == "kind":
        path = path[:-1]
    if fault["type"] in ("union_tag_invalid", "package_missing"):
        path = (*path, "family" if path == ("model",) else "kind")
    head = ": ".join(part for part in (source.where(path), join_path(path), what) if part)
    return f"{head}; {remedy}" if remedy else head


def explain_fault(fault: dict[str, Any], path: KeyPath, config: type[BaseModel]) -> tuple[str, str]:
    """Return what is wrong with a value of a config, and the remedy."""
    value, location = fault.get("input"), fault["loc"]
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key", suggest_name(str(path[-1]), [key for found in choices_at(location[:-1], config)
                                                               for key in keys_of(found)])
        case "missing" if path[-1] == "kind":
            kinds = sorted(str(kind) for found in choices_at(location, config) for kind in get_args(found))
            return "says no kind", f"add `kind:`, one of {', '.join(kinds)}"
        case "missing":
            return "is missing", "add it"
        case "union_tag_not_found":
            tags = {str(tag) for found in choices_at(location, config) for tag in tags_of(found)}
            return "says no kind", f"add `kind:`, one of {', '.join(sorted(tags))}"
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
        inside = (isinstance(values, dict) and part in values) or (
            isinstance(values, list) and isinstance(part, int) and part < len(values))
        # the tag of a union, although a key next to it has the same name
        tag = isinstance(values, dict) and values.get("kind") == part and any(
            after in values for after in location[index + 1:index + 2])
        inside = inside and not tag
        if inside:
            values = values[part]
        if inside or (missing and index == len(location) - 1):
            path.append(part)
    return tuple(path)


def choices_at(location: KeyPath, config: type[BaseModel]) -> list[Any]:
    """Follow a location, tags included, through the annotations of configs; return what may stand there."""
    found: list[Any] = [config]
    for part in location:
        found = [below for one in found for below in list_below(one, part)]
    return [choice for one in found for choice in list_choices(one)]


def list_below(annotation: Any, part: str | int) -> Iterator[Any]:
    """Yield what is below an annotation: the union's member with that tag, or else what a key or a list item may be.

    A location names the member before anything inside it, also where another member has a key of that name.
    """
    choices = [*list_choices(annotation)]
    tagged = [one.find_member(str(part)) if isinstance(one, OpenUnion) else one
              for one in choices if part in tags_of(one)]
    if tagged and len([one for one in choices if one is not NoneType]) > 1:
        yield from tagged
        return
    for one in choices:
        if part in keys_of(one):
            yield keys_of(one)[str(part)].rebuild_annotation()
        elif isinstance(part, int) and get_origin(one) in (tuple, list):
            yield get_args(one)[0]
    yield from tagged


def list_choices(annotation: Any) -> Iterator[Any]:
    """Yield all that an annotation allows: unions opened, `OpenUnion` for the members that one does not list."""
    if get_origin(annotation) is Annotated:
        inside, *extras = get_args(annotation)
        yield from list_choices(inside)
        yield from (one for one in extras if isinstance(one, OpenUnion))
    elif get_origin(annotation) in UNIONS:
        for one in get_args(annotation):
            yield from list_choices(one)
    else:
        yield annotation


def keys_of(choice: Any) -> dict[str, FieldInfo]:
    """Return the fields of a config by their keys in a file; none of anything else."""
    if not (isinstance(choice, type) and issubclass(choice, BaseModel)):
        return {}
    return {field.alias or name: field for name, field in choice.model_fields.items()}


def tags_of(choice: Any) -> tuple[str | int, ...]:
    """Return the tags by which a union knows a choice."""
    if isinstance(choice, OpenUnion):
        return choice.list_tags()
    kind = keys_of(choice).get("kind")
    return () if kind is None else get_args(kind.annotation)
