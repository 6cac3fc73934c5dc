"""The guard against slowness: its rule, and its rows, which run against any source and use public names only."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
from benchmarks import guard, guard_rows
from benchmarks.guard import Outcome


def test_slower_is_what_every_round_and_the_median_say() -> None:
    assert Outcome((1.05, 1.2, 1.04)).slower
    assert Outcome((1.05, 1.2, 1.04)).verdict == "slower"
    assert Outcome((1.05, 1.2, 0.99)).verdict == "no worse than noise"
    assert Outcome((1.01, 1.02, 1.2)).verdict == "no worse than noise"
    assert Outcome((0.9, 0.8, 0.95)).verdict == "faster"
    assert Outcome((0.9, 0.8, 1.01)).verdict == "no worse than noise"


def test_what_seems_slower_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays slower only where the second time says so too."""
    def rounds(*ratios: float) -> Outcome:
        given = iter(ratios)
        monkeypatch.setattr(guard, "one_round", lambda *_, **__: next(given))
        return guard.measured("start", (), rounds=2, turns=1, limit=1.03)

    assert rounds(0.99, 1.2).ratios == (0.99, 1.2)
    assert rounds(1.2, 1.2, 1.2, 0.99).verdict == "no worse than noise"
    assert rounds(1.2, 1.2, 1.2, 1.1).verdict == "slower"


def test_an_unknown_commit_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        guard.source_of("nonsense", tmp_path)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("nonsense: git has no such commit")


@pytest.mark.slow
def test_the_rows_use_public_names_only() -> None:
    """Twelve rows; nothing of the package is imported by the name of a module, which may change."""
    import saucier

    tree = ast.parse(Path(guard_rows.__file__).read_text(encoding="utf-8"))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name) and node.value.id == "saucier"}
    assert [name for name in (*modules, *names) if name.startswith("saucier.")] == []
    assert used <= {*saucier.__all__, "__file__"}
    assert len(guard_rows.ROWS) == 12


@pytest.mark.nightly
@pytest.mark.parametrize("name", guard_rows.ROWS)
def test_a_row_runs(name: str, root: Path) -> None:
    """In processes of their own, against this very source."""
    ratio = guard.one_round(name, (root / "src", root / "src"), turns=1, swapped=False)
    assert math.isfinite(ratio) and ratio > 0
