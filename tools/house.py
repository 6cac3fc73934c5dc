"""The house measured whole: statements, files, doors and arrows, each next to its limit and its target in `house.toml`.

`python tools/house.py` prints the table and exits 1 where a limit is broken; `--list MEASURE` names what was counted.
All of it is read from the source; nothing is run. `tools/roads.py` counts the files that a job runs through.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.check_size import line_count

PACKAGE = "saucier"
BUDGET = Path(__file__).with_name("house.toml")
SHORT = 4
"""A helper with fewer lines than this has to have a second caller, or a good reason."""
COMMON = 2
"""In how many folders one file name may stand."""

Names = Mapping[str, set[str]]


@dataclass(frozen=True)
class Budget:
    """What the house may cost, and how its folders lie on each other."""

    limits: dict[str, int]
    """What may not be exceeded; `make check` fails on it."""
    targets: dict[str, int]
    """Where the limits have still to come down to."""
    layers: list[list[str]]
    """From the ground up; what stands on one line imports nothing of its neighbours."""
    registries: list[str]
    """Modules that list their members by name; a member needs no second importer."""
    mirrors: list[list[str]]
    """Folders that carry the same file names on purpose."""


def read_budget(path: Path = BUDGET) -> Budget:
    """Read limits and targets; a target is that of the start plus what the ledger gives to each capability."""
    stored = tomllib.loads(path.read_text(encoding="utf-8"))
    targets = Counter(stored["targets"])
    for raised in stored.get("ledger", []):
        targets.update({key: value for key, value in raised.items() if key in stored["targets"]})
    return Budget(stored["limits"], dict(targets), stored["layers"], stored["registries"], stored["mirrors"])


class House:
    """Every module of the package, parsed once.

    Args:
        source: The folder that holds the package's folder.
    """

    def __init__(self, source: Path) -> None:
        self.paths = {module_name(path, source): path for path in sorted((source / PACKAGE).rglob("*.py"))}
        self.trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in self.paths.items()}
        self.imports = {name: imported(tree, self.trees) - {name} for name, tree in self.trees.items()}

    def folder(self, module: str) -> str:
        """Return the first room of the house that a module stands in: its folder, or its own name at the top."""
        return [*module.split("."), "__init__"][1]

    def statements(self) -> list[str]:
        """Name every statement that is neither an import nor a docstring, as `module:line`."""
        return [f"{name}:{node.lineno}" for name, tree in self.trees.items() for node in ast.walk(tree)
                if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
                and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]

    def files(self) -> list[str]:
        """Name every file."""
        return [*self.paths]

    def common_names(self, mirrors: list[list[str]]) -> list[str]:
        """Name the file names that stand in more than two folders; folders that mirror each other count once."""
        folders: dict[str, set[str]] = defaultdict(set)
        for module, path in self.paths.items():
            where = ".".join(module.split(".")[1:-1])
            group = next((i for i, one in enumerate(mirrors) if where in one), None)
            folders[path.name].add(where if group is None else f"mirror {group}")
        return sorted(f"{name}: {', '.join(sorted(found))}" for name, found in folders.items()
                      if name != "__init__.py" and len(found) > COMMON)

    def one_importer(self, registries: list[str]) -> list[str]:
        """Name the modules that serve one other module only, as `module <- importer`."""
        importers: dict[str, set[str]] = defaultdict(set)
        for module, found in self.imports.items():
            for one in found:
                importers[one].add(module)
        return [f"{module} <- {next(iter(importers[module]))}" for module in self.paths
                if len(importers[module]) == 1 and not importers[module] & {*registries}]

    def short_helpers(self) -> list[str]:
        """Name the functions under four lines that one place calls and no other place names."""
        named = Counter(name for tree in self.trees.values() for name in names_in(tree))
        called = Counter(name for tree in self.trees.values() for name in calls_in(tree))
        return [f"{module}.{node.name}" for module, tree in self.trees.items() for node in tree.body
                if isinstance(node, ast.FunctionDef) and line_count(node) < SHORT
                and not node.decorator_list and named[node.name] == called[node.name] == 1]

    def config_types(self) -> list[str]:
        """Name the classes of the config tree."""
        return [f"{module}.{node.name}" for module, tree in self.trees.items() if self.folder(module) == "config"
                for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]

    def arrows_up(self, layers: list[list[str]]) -> list[str]:
        """Name the imports that do not go down, those of folders without a place included."""
        height = {folder: level for level, line in enumerate(layers) for folder in line}
        edges = [(module, one) for module, found in self.imports.items() for one in sorted(found)
                 if self.folder(module) != self.folder(one) and self.folder(module) not in ("__init__", "__main__")
                 and one != PACKAGE]
        return [f"{module} -> {one}" for module, one in edges
                if height.get(self.folder(one), len(layers)) >= height.get(self.folder(module), -1)]

    def circles(self) -> list[str]:
        """Name every group of modules that import each other, by whatever way round."""
        return sorted(" <-> ".join(sorted(group)) for group in knots(self.imports) if len(group) > 1)


def module_name(path: Path, source: Path) -> str:
    """Return the dotted name of a file below the source folder."""
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, known: Iterable[str]) -> set[str]:
    """Return the modules of the house that a file imports, also inside functions and for type checking only."""
    found: set[str] = set()
    modules = set(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    return found


def names_in(tree: ast.AST) -> list[str]:
    """Return every name that is read or written, attributes included, as often as it occurs."""
    return [node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)]


def calls_in(tree: ast.AST) -> list[str]:
    """Return the name of what is called, as often as it is."""
    return [name for node in ast.walk(tree) if isinstance(node, ast.Call) for name in names_in(node.func)[:1]]


def knots(edges: Names) -> list[set[str]]:
    """Return the strongly connected groups of a graph.

    Source: Tarjan 1972, Depth-first search and linear graph algorithms, SIAM J. Comput. 1(2).
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            groups.append({*stack[stack.index(node):]})
            del stack[stack.index(node):]

    for node in edges:
        if node not in order:
            visit(node)
    return groups


def measure(house: House, budget: Budget) -> dict[str, list[str]]:
    """Return what each limit of the budget counts, by the limit's name."""
    return {"statements": house.statements(), "files": house.files(),
            "file names in more than two folders": house.common_names(budget.mirrors),
            "modules with one importer": house.one_importer(budget.registries),
            "short helpers with one caller": house.short_helpers(), "types in config": house.config_types(),
            "imports that do not go down": house.arrows_up(budget.layers), "circles of modules": house.circles()}


def main(words: list[str] | None = None) -> int:
    """Print every measure beside its limit; return 1 where one is over it."""
    parser = argparse.ArgumentParser(description="measure the house")
    parser.add_argument("--list", metavar="MEASURE", help="name what this measure counts")
    parser.add_argument("--report", action="store_true", help="only report: exit 0 whatever is found")
    parser.add_argument("--source", type=Path, default=Path("src"), help="the folder that holds the package")
    options = parser.parse_args(words)
    budget = read_budget()
    counted = measure(House(options.source), budget)
    if options.list is not None:
        if options.list not in counted:
            parser.error(f"no measure {options.list!r}; there are: {', '.join(counted)}")
        print("\n".join(counted[options.list]))
        return 0
    over = [name for name, found in counted.items() if len(found) > budget.limits[name]]
    for name, found in counted.items():
        print(f"{name:38} {len(found):6}   limit {budget.limits[name]:6}   target {budget.targets[name]:6}"
              f"{'   over' if name in over else ''}")
    return int(bool(over) and not options.report)


if __name__ == "__main__":
    sys.exit(main())
