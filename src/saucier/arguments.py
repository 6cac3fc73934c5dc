"""The arguments of public functions: each has its help, its limits and its kind in the signature, once, for Python and
for the shell.

`public` checks what is given against the signature, so that a value of a wrong kind is one line and no traceback from
within. `cli/derive.py` makes the options of a verb from the same signature.
"""

# Annotations are evaluated here, not postponed: they are what is read.

import collections.abc
import inspect
import json
import numbers
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)

from saucier.errors import InputError, shorten_text, suggest_name

P = ParamSpec("P")
R = TypeVar("R")


class NotImported(type):
    """The class of a stand-in for a class whose module is not imported for an annotation."""

    place: tuple[str, str]

    def __instancecheck__(cls, value: object) -> bool:
        """Say whether a value is of the class: of one that was not imported there is none."""
        module = sys.modules.get(cls.place[0])
        return module is not None and isinstance(value, getattr(module, cls.place[1]))


def not_imported(module: str, name: str) -> Any:
    """Return a stand-in for a class in annotations that are read at run time."""
    return NotImported(name, (), {"place": (module, name)})


@runtime_checkable
class ArrowStream(Protocol):
    """A table in memory: Arrow, pandas, polars and others have this method."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as Arrow's stream."""


@runtime_checkable
class Interchange(Protocol):
    """A dataframe of the interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        """Return the frame's view of the protocol."""


Place = str | os.PathLike[str]
"""A path; where a model is meant also a hub id, where a recipe also its name."""
Files = Place | Sequence[Place]
"""One file, or several; a pattern with `*` stands for all files that match."""
Rows = Place | Sequence[Place | Mapping[str, Any]] | ArrowStream | Interchange
"""Files; or rows in memory: a list of mappings, a table of Arrow, or a dataframe."""
Changes = Mapping[str, Any] | Sequence[str]
"""Changes to settings: a (nested) mapping, or words `key.sub=value`."""


@dataclass(frozen=True, slots=True)
class Help:
    """What a person reads about one argument, and what it may be."""

    text: str
    _: KW_ONLY
    metavar: str | None = None
    """What its value is called on the command line."""
    option: str | None = None
    """Its name there, where that is not `--name`."""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """All that it may be; none: not only some names."""
    check: Callable[[Any], object] | None = None
    """Raises `InputError` for a value that cannot be; not called for None."""
    section: str | None = None
    """A heading of its own in `--help`."""
    shell: bool = True
    """False: an argument of Python alone."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of each call against the signature. Raises `InputError`; `TypeError` for unknown names."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check_argument(name, value, signature.parameters[name].annotation)
        return function(*args, **kwargs)

    return checked


def with_arguments_of(first: Callable[Concatenate[Any, P], R]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the signature of another one without its first argument; it gets what was given by name."""
    signature = inspect.signature(first)
    signature = signature.replace(parameters=[*signature.parameters.values()][1:])

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        @wraps(function)
        def with_names(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(**signature.bind(*args, **kwargs).arguments)

        with_names.__signature__ = signature  # type: ignore[attr-defined]
        return with_names

    return decorate


def check_argument(name: str, value: object, annotation: Any) -> None:
    """Raise `InputError` for a value that its annotation does not allow."""
    kind, about = split_annotation(annotation)
    if not is_a(value, kind):
        raise InputError(f"is {type(value).__name__} {shorten_text(repr(value))[:80]}", where=name,
                         remedy=f"give {describe_kind(kind)}")
    if value is None or about is None:
        return
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        check_range(name, value, about)
    if about.choices and value not in about.choices:
        raise InputError(f"unknown {name} {value!r}", where=name, remedy=suggest_name(str(value), list(about.choices)))
    if about.check is not None:
        about.check(value)


def split_annotation(annotation: Any) -> tuple[Any, Help | None]:
    """Return the kind of an argument, and its help where it has one."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, *extras = get_args(annotation)
    return kind, next((one for one in extras if isinstance(one, Help)), None)


def check_range(name: str, value: Any, about: Help) -> None:
    """Raise `InputError` for a number beyond its limits, or for one that is none."""
    low, high = about.minimum, about.maximum
    if value != value or (low is not None and value < low) or (high is not None and value > high):
        limits = " and ".join(f"at {word} {one:g}" for word, one in (("least", low), ("most", high)) if one is not None)
        raise InputError(f"is {str(value)[:40]}", where=name, remedy=f"give a number{limits and ' of '}{limits}")


def is_a(value: object, kind: Any) -> bool:
    """Say whether a value is of the kind that an annotation names."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return any(is_a(value, one) for one in inside)
    if origin is Literal:
        return value in inside
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping) and all(is_a(key, inside[0]) for key in value)
    if origin is collections.abc.Sequence:
        return isinstance(value, list | tuple) and all(is_a(one, inside[0]) for one in value)
    plain = NUMBERS.get(kind, origin or kind)
    truth = isinstance(value, bool) and kind in NUMBERS  # True is no 1 here
    return kind is Any or (kind is None and value is None) or (not truth and isinstance(value, plain))


UNIONS = (types.UnionType, Union)
NUMBERS = {int: numbers.Integral, float: numbers.Real}
NAMES = {str: "text", int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None",
         os.PathLike: "a path", ArrowStream: "an Arrow table", Interchange: "a dataframe"}


def describe_kind(kind: Any) -> str:
    """Say in words what may be given."""
    return " or ".join(dict.fromkeys(name_kinds(kind)))


def name_kinds(kind: Any) -> Iterator[str]:
    """Yield the names of the kinds that an annotation allows."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        for one in inside:
            yield from name_kinds(one)
    elif origin is Literal:
        yield from map(repr, inside)
    elif origin is collections.abc.Mapping:
        yield "a mapping"
    elif origin is collections.abc.Sequence:
        yield f"a list of {describe_kind(inside[0])}"
    elif (origin or kind) is not types.NoneType:
        yield NAMES.get(origin or kind, getattr(kind, "__name__", str(kind)))


OVERRIDE = re.compile(r"^([A-Za-z_]\w*(?:\.\w+)*)=(.*)$", re.DOTALL)
"""The key, and the value as YAML."""
COMMAND_LINE = "command line"
"""Where such a word was written, in errors."""


def is_override(text: str) -> bool:
    """Tell an override from the name of a file; `./a=b.txt` is a file."""
    return OVERRIDE.match(text) is not None


def split_overrides(words: Sequence[str], files: Sequence[str], *, wrong: str, remedy: str) -> tuple[list[str],
                                                                                                   list[str]]:
    """Tell `key.sub=value` from more of the files that an option was given, as a shell unfolds `--data *.txt`.

    Returns (overrides, files). Raises `InputError` for a word that is neither; `wrong` says what it is not.
    """
    overrides = [word for word in words if is_override(word)]
    others = [word for word in words if not is_override(word)]
    if others and not files:
        raise InputError(f"{others[0]!r} is {wrong}", where=COMMAND_LINE, remedy=remedy)
    return overrides, [*files, *others]


def format_overrides(changes: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield `key.sub=value` words for nested values; a `kind` comes first, since it begins its section again."""
    for key, value in sorted(changes.items(), key=lambda item: item[0] != "kind"):
        if isinstance(value, dict) and value:
            yield from format_overrides(value, f"{before}{key}.")
        else:
            yield f"{before}{key}={json.dumps(value)}"
