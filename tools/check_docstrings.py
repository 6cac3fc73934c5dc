"""Every public module, class, function, method and recipe field has a docstring.

Private names (a leading underscore), dunder methods other than `__init__` and `__call__`, overloads, functions inside
functions and `main` guards are left alone. `__init__` and `__call__` may leave the word to their class. A field of a
config or of a class that documents any field by the string below it must have such a string; a class docstring that
names the field will do as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.source import Function, Named, definitions, run

BY_THEIR_CLASS = ("__init__", "__call__")
FIXED_FIELDS = ("kind", "model_config")


def is_public(name: str) -> bool:
    """Tell whether a dotted name is for readers: no part of it starts with an underscore, save the two dunders."""
    return all(part in BY_THEIR_CLASS or not part.startswith("_") for part in name.split("."))


def needs_docstring(named: Named) -> bool:
    """Tell whether this definition must have a docstring of its own."""
    if isinstance(named.parent, Function) or not is_public(named.name):
        return False
    if isinstance(named.node, Function) and any("overload" in ast.unparse(mark) for mark in named.node.decorator_list):
        return False
    inside_documented = isinstance(named.parent, ast.ClassDef) and ast.get_docstring(named.parent) is not None
    return not (named.node.name in BY_THEIR_CLASS and inside_documented)


def bare_fields(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """Yield the public fields of a config that neither a string below nor the class docstring explains."""
    told = ast.get_docstring(node) or ""
    for line, following in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        name = line.target.id
        below = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if is_public(name) and name not in FIXED_FIELDS and not below and f"`{name}`" not in told:
            yield line


def is_config(node: ast.ClassDef) -> bool:
    """Tell whether the class is a config: it derives from `Config`."""
    return any(ast.unparse(base).split(".")[-1] == "Config" for base in node.bases)


def check(path: Path) -> list[str]:
    """Return one line per missing docstring in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    faults = []
    if ast.get_docstring(tree) is None and path.read_text(encoding="utf-8").strip():
        faults.append(f"{path}:1: the module has no docstring")
    for named in definitions(tree):
        where = f"{path}:{named.node.lineno}"
        if needs_docstring(named) and ast.get_docstring(named.node) is None:
            faults.append(f"{where}: {named.name} has no docstring")
        if isinstance(named.node, ast.ClassDef) and is_config(named.node) and is_public(named.name):
            fields = [(field.lineno, ast.unparse(field.target)) for field in bare_fields(named.node)]
            faults += [f"{path}:{line}: {named.name}.{field} is not explained: put a string below it, or name it as "
                       f"`{field}` in the class docstring" for line, field in fields]
    return faults


if __name__ == "__main__":
    sys.exit(run(check, sys.argv[1:] or ["src"]))
