"""What a function takes, by its signature, and whether a value is of the type that it says.

So a new function, or a new parameter, is called with wrong values without a line here.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from saucier.generation.options import GenerationOptions
from saucier.parts.inputs import Inputs


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each parameter, by name; those of `**inputs` and `**options` too."""
    plain = getattr(function, "func", function)
    plain = plain if inspect.isroutine(plain) or inspect.isclass(plain) else type(plain).__call__
    hints = get_hints(plain)
    found: dict[str, Any] = {}
    filled = len(getattr(function, "args", ())) + ("self" in inspect.signature(plain).parameters)
    for name, one in [*inspect.signature(plain).parameters.items()][filled:]:
        if one.kind is one.VAR_KEYWORD:
            more: dict[str, Any] = (typing.get_type_hints(Inputs) if name == "inputs" else
                    {key: field.annotation for key, field in GenerationOptions.model_fields.items()}
                    if name == "options" else {})
            found |= {key: hint | None for key, hint in more.items()}  # None leaves each of them out
        elif one.kind is not one.VAR_POSITIONAL:
            found[name] = hints.get(name, Any)
    return found


def get_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types, where all of them can be looked up: some are imported for type checkers alone."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        found = inspect.signature(function).parameters
        return {name: one.annotation for name, one in found.items() if not isinstance(one.annotation, str)}


def required(function: Callable[..., Any]) -> list[str]:
    """Return the parameters without a default."""
    return [name for name, one in inspect.signature(function).parameters.items()
            if one.default is one.empty and one.kind is not one.VAR_KEYWORD]


def fits(value: Any, hint: Any) -> bool:
    """Say whether a value may be meant by a type; True where a library's own types could stand in for it."""
    if hint in (Any, object):
        return True
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Annotated:
        return fits(value, inner[0])
    if kind in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if kind is typing.Literal:
        return any(value is one or (type(value) is type(one) and value == one) for one in inner)
    if hint in (None, types.NoneType):
        return value is None
    if kind is type or hint is type:
        return isinstance(value, type)
    if (kind or hint) is Callable or kind is typing.get_origin(Callable[..., Any]):
        return callable(value)
    if isinstance(kind, type):
        return fits_container(value, kind, inner)
    return not isinstance(hint, type) or fits_class(value, hint)


def fits_container(value: Any, kind: type, inner: tuple[Any, ...]) -> bool:
    """Say it of lists, mappings and the like; what can be iterated otherwise may be meant."""
    if isinstance(value, Mapping) and issubclass(kind, Mapping):
        return len(inner) != 2 or all(fits(key, inner[0]) and fits(one, inner[1]) for key, one in value.items())
    if isinstance(value, list | tuple) and issubclass(kind, Sequence):
        return not inner or all(fits(one, inner[0]) for one in value)
    return hasattr(value, "__iter__") or isinstance(value, kind)


def fits_class(value: Any, hint: type) -> bool:
    """Say it of a class: a whole number is a fraction too, a text a path, and anything may follow a protocol."""
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return True
    if hint in (bool, int) and (hasattr(value, "__index__") or (isinstance(value, str) and value.strip().isdigit())):
        return True  # settings take numbers as text, as files hold them
    if hint in (bool, int) and isinstance(value, float):
        return value.is_integer()
    wider = (int, float) if hint is float else (str, hint) if issubclass(hint, PathLike) else (hint,)
    return isinstance(value, wider)
