"""Planted faults that the test suite must find: sixty small changes of the package, spread over all its folders.

`python tools/mutants.py run` applies the faults of `tests/frozen/mutants.json` one by one, each to a copy of the
project, and runs the tests until one fails: first the test that found it the last time, then the tests that mirror its
folder, then all others. A fault that no test finds shows a missing test. `--record` writes down which test found each.

`python tools/mutants.py draw --number N --seed S` proposes faults: an operator, a bound, a sign or a number by one,
drawn evenly over the folders. The sixty are of `--number 90 --seed 6`; what changes nothing that a user could see, and
what no test could miss (an axis that is not there), was left out by hand.

A fault is a line of text and what it becomes. Where its file is gone, the line is looked for in the whole package, so
that a fault outlives a move; a line that was rewritten needs its fault rewritten, too, and `run` says so.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.source import python_files

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "frozen" / "mutants.json"
COPIED = ("src", "tests", "tools", "benchmarks", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "Makefile")
SECONDS = 1800
"""A run of the tests that takes longer counts as a hang, and the fault as found."""
LEAST = 2
"""Faults of a folder, at least, when they are drawn."""
COMPARISONS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
               ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: (" in ", " not in "),
               ast.NotIn: (" not in ", " in "), ast.Is: (" is ", " is not "), ast.IsNot: (" is not ", " is ")}
ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"),
              ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "+")}
SILENT = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Assert)
"""Places where a change is a message or nothing: no fault is drawn there."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One line of the package, and what it becomes."""

    file: str
    before: str
    after: str
    kind: str
    killed_by: str = ""
    """The test that found it the last time."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of text on one line, in bytes, and what stands there instead."""

    line: int
    start: int
    end: int
    before: str
    after: str
    kind: str


def edits(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    """Yield the changes of everything below a node, but for messages and annotations."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, SILENT):
                yield from own_edits(child, lines)
                yield from edits(child, lines)


def own_edits(node: ast.AST, lines: list[bytes]) -> Iterator[Edit]:
    """Yield the changes of one node."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            yield from between(left, right, *COMPARISONS[type(op)], lines, "comparison")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield from between(left, right, *ARITHMETIC[type(op)], lines, "operator")
        case ast.BoolOp(op=op, values=[left, right, *_]):
            words = (" and ", " or ") if isinstance(op, ast.And) else (" or ", " and ")
            yield from between(left, right, *words, lines, "operator")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Edit(node.lineno, node.col_offset, operand.col_offset, "not ", "", "negation")
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield Edit(node.lineno, node.col_offset, operand.col_offset, "-", "", "sign")
        case ast.Constant(value=bool() | str() | bytes() | None):
            return
        case ast.Constant(value=int(number)) if node.end_col_offset is not None:
            yield Edit(node.lineno, node.col_offset, node.end_col_offset, str(number), str(number + 1), "off by one")


def between(left: ast.expr, right: ast.expr, before: str, after: str, lines: list[bytes], kind: str) -> Iterator[Edit]:
    """Yield the change of an operator between two operands on one line."""
    if left.end_lineno == right.lineno and left.end_col_offset is not None:
        gap = lines[left.end_lineno - 1][left.end_col_offset:right.col_offset]
        if gap.count(before.encode()) == 1:
            start = left.end_col_offset + gap.index(before.encode())
            yield Edit(right.lineno, start, start + len(before.encode()), before, after, kind)


def mutants_of(path: Path) -> list[Mutant]:
    """Return every fault that a file could have; a line that stands twice in it has none."""
    source = path.read_bytes()
    lines = source.splitlines()
    found = []
    for edit in edits(ast.parse(source), lines):
        line = lines[edit.line - 1]
        changed = line[:edit.start] + edit.after.encode() + line[edit.end:]
        if lines.count(line) == 1 and line[edit.start:edit.end] == edit.before.encode():
            name = path.relative_to(ROOT).as_posix()
            found.append(Mutant(name, line.decode().strip(), changed.decode().strip(), edit.kind))
    return found


def drawn(number: int, seed: int) -> list[Mutant]:
    """Draw faults by chance, spread over the folders by their share of the possible ones, `LEAST` in each at least."""
    dice = random.Random(seed)
    by_folder: dict[str, list[Mutant]] = defaultdict(list)
    for path in python_files([str(ROOT / "src")]):
        inside = path.relative_to(ROOT / "src" / "saucier").parts
        by_folder[inside[0] if len(inside) > 1 else ""] += mutants_of(path)
    whole = sum(map(len, by_folder.values()))
    spare = number - LEAST * len(by_folder)
    counts = {folder: LEAST + spare * len(found) // whole for folder, found in by_folder.items()}
    for folder in sorted(counts, key=lambda name: -len(by_folder[name]))[:number - sum(counts.values())]:
        counts[folder] += 1
    return [one for folder, found in sorted(by_folder.items()) for one in dice.sample(found, counts[folder])]


def read_list() -> list[Mutant]:
    """Read the faults that are kept."""
    return [Mutant(**one) for one in json.loads(LIST.read_text(encoding="utf-8"))]


def write_list(mutants: list[Mutant]) -> None:
    """Write the faults that are kept."""
    LIST.write_text(json.dumps([asdict(one) for one in mutants], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def place(mutant: Mutant, root: Path) -> Path | None:
    """Find the one file that has the line of a fault, its own first; None where there is none, or several."""
    def has(path: Path) -> bool:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines()].count(mutant.before) == 1

    own = root / mutant.file
    if own.is_file() and has(own):
        return own
    found = [path for path in python_files([str(root / "src")]) if has(path)]
    return found[0] if len(found) == 1 else None


def planted(mutant: Mutant, path: Path) -> str:
    """Put a fault into a file; return the text that was there."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    number = [line.strip() for line in lines].index(mutant.before)
    lines[number] = lines[number].replace(mutant.before, mutant.after)
    path.write_text("".join(lines), encoding="utf-8")
    return text


def copied(target: Path) -> Path:
    """Copy what the tests need, with a link to the shared data where these are; return the copy."""
    root = target / "project"
    root.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, root / name)
    if (ROOT.parent / "shared").is_dir():
        (target / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return root


def selections(mutant: Mutant, root: Path, *, near: bool) -> Iterator[list[str]]:
    """Yield what to run, the likeliest to find it first, all tests last (not if only those `near` it are wanted)."""
    if mutant.killed_by and (root / mutant.killed_by.partition("::")[0]).is_file():
        yield [mutant.killed_by]
    folder = Path(mutant.file).parts[2:-1]
    mirrored = [name for name in (f"tests/unit/{folder[0]}" if folder else "", f"tests/{folder[0]}" if folder else "")
                if name and (root / name).is_dir()]
    if mirrored:
        yield mirrored
    if not near:
        yield ["tests", *(f"--ignore={name}" for name in mirrored)]


WITH_SLOW = "not nightly and not gpu and not wheel"
"""The tests that every landing runs."""


def finder(mutant: Mutant, root: Path, *, jobs: int, near: bool) -> str:
    """Return the test that fails with a fault, or an empty text."""
    for chosen in selections(mutant, root, near=near):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "--tb=no",
                   "-m", WITH_SLOW, *chosen]
        if jobs > 1 and chosen[0] == "tests":
            command += ["-n", str(jobs), "--dist", "worksteal"]
        paths = os.pathsep.join(map(str, (root / "src", root)))
        try:
            done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
                                  text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return " ".join(chosen)
        if done.returncode not in (0, 5):
            failed = [line.split()[1].partition("[")[0] for line in done.stdout.splitlines()
                      if line.startswith(("FAILED ", "ERROR "))]
            return failed[0] if failed else " ".join(chosen)
    return ""


def outcome(mutant: Mutant, root: Path, *, jobs: int, near: bool) -> tuple[Mutant, str]:
    """Try one fault; return it with the test that found it, and what to say."""
    path = place(mutant, root)
    if path is None:
        return mutant, "its line is not there, or not once: write the fault again"
    before = planted(mutant, path)
    try:
        found = finder(replace(mutant, file=path.relative_to(root).as_posix()), root, jobs=jobs, near=near)
    finally:
        path.write_text(before, encoding="utf-8")
    return replace(mutant, killed_by=found), found and f"found by {found}"


def run(numbers: list[int], *, jobs: int, near: bool, record: bool) -> int:
    """Try the faults with these numbers, all of them by default. Returns 1 where one was not found."""
    mutants, left = read_list(), 0
    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder))
        for number in numbers or range(len(mutants)):
            mutant, told = outcome(mutants[number], root, jobs=jobs, near=near)
            left += not mutant.killed_by or not told.startswith("found")
            print(f"{number} {mutant.file}: {mutant.before} → {mutant.after}\n  {told or 'NOT FOUND'}", flush=True)
            if record:
                mutants[number] = mutant
                write_list(mutants)
    print(f"{left} of {len(numbers or mutants)} faults were not found")
    return int(left > 0)


def main() -> None:
    """Draw faults, or try those that are kept."""
    parser = argparse.ArgumentParser(description="Faults that the tests must find.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw", help="propose faults, as JSON on standard output")
    drawing.add_argument("--number", type=int, default=60)
    drawing.add_argument("--seed", type=int, default=0)
    trying = verbs.add_parser("run", help="apply the kept ones, one by one, and run the tests")
    trying.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="which of them (default: all)")
    trying.add_argument("--jobs", type=int, default=1, help="processes for the whole suite")
    trying.add_argument("--near", action="store_true", help="try only the tests that mirror a fault's folder")
    trying.add_argument("--record", action="store_true", help="write down which test found each")
    given = parser.parse_args()
    if given.verb == "draw":
        print(json.dumps([asdict(one) for one in drawn(given.number, given.seed)], indent=1, ensure_ascii=False))
    else:
        sys.exit(run(given.numbers, jobs=given.jobs, near=given.near, record=given.record))


if __name__ == "__main__":
    main()
