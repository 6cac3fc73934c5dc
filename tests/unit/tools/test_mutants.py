"""The planted faults can be planted: each line is there once, and what it becomes is Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools import mutants

LISTED = mutants.read_list()


def test_there_are_enough_spread_over_all_folders(root: Path) -> None:
    folders = {path.name for path in (root / "src" / "saucier").iterdir() if any(path.glob("*.py"))}
    assert len(LISTED) == len({(one.before, one.after) for one in LISTED}) >= 60
    assert {Path(one.file).parts[2] for one in LISTED} >= folders


@pytest.mark.parametrize("mutant", LISTED, ids=lambda one: f"{Path(one.file).stem}: {one.after[:30]}")
def test_each_is_planted_once_and_is_code(mutant: mutants.Mutant, root: Path, tmp_path: Path) -> None:
    """Python that says something else; a fault in C is compiled by the test that finds it."""
    path = mutants.place(mutant, root)
    assert path is not None
    copy = tmp_path / f"copy{path.suffix}"
    copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    before = mutants.planted(mutant, copy)
    changed = copy.read_text(encoding="utf-8")
    if path.suffix == ".py":
        assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(changed))
    different = [pair for pair in zip(before.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]]
    assert [(old.strip(), new.strip()) for old, new in different] == [(mutant.before, mutant.after)]


def test_a_line_that_moved_is_found(root: Path) -> None:
    moved = mutants.replace(LISTED[0], file="src/saucier/nowhere.py")
    assert mutants.place(moved, root) == root / LISTED[0].file
