"""Reading Python files for the checks: which files, and which definitions with their dotted names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Named(NamedTuple):
    """A definition, its dotted name inside the file, and the definition (or module) that holds it."""

    name: str
    node: Definition
    parent: ast.AST


def python_files(roots: list[str]) -> Iterator[Path]:
    """Yield the Python files under each root, in a fixed order; a root may itself be a file, or be absent."""
    for root in map(Path, roots):
        yield from [root] if root.is_file() else sorted(root.rglob("*.py"))


def definitions(node: ast.AST, prefix: str = "") -> Iterator[Named]:
    """Yield every class and function below `node`, outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            name = f"{prefix}{child.name}"
            yield Named(name, child, node)
            yield from definitions(child, f"{name}.")
        else:
            yield from definitions(child, prefix)


def run(check: Callable[[Path], list[str]], roots: list[str]) -> int:
    """Print what `check` finds in every file below the roots; return the exit code, 1 when there is anything."""
    faults = [fault for path in python_files(roots) for fault in check(path)]
    print("\n".join(faults), end="\n" if faults else "")
    print(f"{Path(sys.argv[0]).name}: {len(faults)} faults")
    return 1 if faults else 0
