"""`Config`, the base of everything that a recipe can say: frozen, typed, and strict about unknown keys.

`rewrite_config` changes a whole tree of them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, field_validator
from pydantic_core import CoreSchema

from saucier.errors import InputError, suggest_name
from saucier.plain import HANDED_IN

LARGEST_NUMBER = 2**63 - 1
"""The largest whole number that tensors, arrays and files can hold."""


class ConfigError(InputError):
    """Arguments that make no config: the first fault in one line, and all of them in `cause`."""

    def __init__(self, kind: type[BaseModel], values: Mapping[str, Any], cause: ValidationError) -> None:
        """Say what is wrong with the arguments of a class."""
        self.cause = cause
        what, place, remedy = HANDED_IN["config fault"](kind, values, cause)
        super().__init__(what, where=place, remedy=remedy or None)


class Config(BaseModel):
    """A frozen piece of a recipe. Slots that exclude each other are unions told apart by `kind`.

    No whole number in it is beyond 64 bits: nothing that reads it could hold it.
    """

    # what most of a few hundred classes need to check their values is never made: only at the first use of each
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True)

    def __init__(self, /, **values: Any) -> None:
        """Make one of its fields. Raises `ConfigError`, an `InputError`, for a name or a value that it cannot have."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(type(self), values, error) from None

    # Pydantic then reads nested configs without this method, and reports their faults with the whole path
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values, which are checked when a model is built of it.

        Raises `InputError` for a field that there is not.
        """
        if unknown := (update or {}).keys() - type(self).model_fields.keys():
            name = min(unknown)
            raise InputError("unknown key", where=f"{type(self).__name__}.{name}",
                             remedy=suggest_name(name, list(type(self).model_fields)))
        return super().model_copy(update=update, deep=deep)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change a config. Raises `InputError` that says how to get another one."""
        raise InputError("a config cannot be changed", where=f"{type(self).__name__}.{name}",
                         remedy=f"config.model_copy(update={{{name!r}: ...}}) gives one with another value")

    def __str__(self) -> str:
        """Show what is not the default, under the name of the class."""
        return repr(self)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Show what is not the default."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name, None)
            if field.is_required() or value != field.get_default(call_default_factory=True):
                yield name, value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema with the docstrings of fields as descriptions; only now are sources read for them."""
        found = handler(core_schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in field_docstrings(cls).items():
            alias = cls.model_fields[name].alias
            properties.get(alias if alias in properties else name, {}).setdefault("description", text)
        return found

    @field_validator("*")
    @classmethod
    def _of_64_bits(cls, value: Any) -> Any:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int) and not -LARGEST_NUMBER <= one <= LARGEST_NUMBER:
                raise ValueError("should be a whole number of at most 64 bits")
        return value


Part = TypeVar("Part", bound=Config)


def rewrite_config(config: Part, change: Callable[[Config], Config]) -> Part:
    """Return a part of a model with `change` done to every config in it, the innermost first.

    What does not change is the same object as before.
    """
    found = {name: one for name, value in config if (one := _rewrite_value(value, change)) is not value}
    return change(config.model_copy(update=found) if found else config)  # type: ignore[return-value]  # the same slot


def _rewrite_value(value: Any, change: Callable[[Config], Config]) -> Any:
    if isinstance(value, Config):
        return rewrite_config(value, change)
    if isinstance(value, tuple):
        found = tuple(_rewrite_value(one, change) for one in value)
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found
    return value


def validate_again(config: Config) -> None:
    """Raise `ConfigError` for a config with values that it cannot have: a copy takes any, unlike its class."""
    values = config.model_dump(mode="python", warnings=False)
    try:
        type(config).model_validate(values)
    except ValidationError as error:
        raise ConfigError(type(config), values, error) from None


def field_docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """Return what stands under the fields of a class; of an inherited field, in the class that writes it down last."""
    homes = {name: next((one for one in kind.__mro__ if name in inspect.get_annotations(one)), kind)
             for name in kind.model_fields}
    texts = {name: module_docstrings(home.__module__).get(home.__qualname__, {}).get(name)
             for name, home in homes.items()}
    return {name: text for name, text in texts.items() if text is not None}


@cache
def module_docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of fields by the class, of a whole module; nothing where its source is not there."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    return {name: dict(list_docstrings(node)) for name, node in list_classes(ast.parse(source), "")}


def list_classes(node: ast.AST, before: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield every class below a node by its qualified name."""
    for one in ast.iter_child_nodes(node):
        inside = before
        if isinstance(one, ast.ClassDef):
            yield before + one.name, one
            inside = f"{before}{one.name}."
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{before}{one.name}.<locals>."
        yield from list_classes(one, inside)


def list_docstrings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a docstring under them."""
    for field, below in pairwise(node.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, inspect.cleandoc(text)
