"""`Described`: the docstrings under the fields of a class stand in its JSON Schema.

Pydantic can put them there too, but reads the source of every class when the class is made. Here it is read when a
schema is asked for, once for each module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Described(BaseModel):
    """A class whose fields are described by the docstrings under them."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema with a description of every field that has a docstring."""
        found = handler(core_schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in field_docstrings(cls).items():
            alias = cls.model_fields[name].alias
            properties.get(alias if alias in properties else name, {}).setdefault("description", text)
        return found


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
