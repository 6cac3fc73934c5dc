"""The tool that measures the house counts what it says, on a small house of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.house import House, knots, main, read_budget


@pytest.fixture
def small(tmp_path: Path) -> House:
    """Build a package of five files with one fault of every kind."""
    files = {
        "__init__.py": '"""The house."""\n',
        "errors.py": '"""Ground."""\n\nclass Wrong(Exception):\n    """Wrong."""\n',
        "config/model.py": '"""Data."""\n\nfrom saucier.errors import Wrong\n\n\ndef half(n: int) -> int:\n'
                           '    """Halve."""\n    return n // 2\n\n\n'
                           'class A:\n    """A type."""\n\n    size = half(4)\n    fault = Wrong\n',
        "parts/model.py": '"""Computes."""\n\nfrom saucier.config.model import A\n\nLONG = A\n',
        "text/model.py": '"""Rows."""\n\n\ndef late() -> object:\n    """Import upwards, lazily."""\n'
                         '    from saucier.jobs import run\n    return run\n',
        "jobs/run.py": '"""A job."""\n\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n'
                       '    from saucier.text.model import late\n\nlate_too: "late"\n',
    }
    for name, text in files.items():
        path = tmp_path / "saucier" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return House(tmp_path)


def test_statements_are_counted_without_imports_and_docstrings(small: House) -> None:
    """A class, a function, an assignment and an `if` are one each."""
    found = small.statements()
    assert len(found) == 1 + 5 + 1 + 2 + 2
    assert "saucier.parts.model:5" in found


def test_arrows_and_circles_include_lazy_and_type_checking_imports(small: House) -> None:
    """What is imported inside a function, or for types only, ties two files together all the same."""
    layers = [["errors"], ["config"], ["parts"], ["text"], ["jobs"]]
    assert small.arrows_up(layers) == ["saucier.text.model -> saucier.jobs.run"]
    assert small.circles() == ["saucier.jobs.run <-> saucier.text.model"]


def test_a_folder_without_a_place_is_an_arrow_up(small: House) -> None:
    """A new folder has to be given its place among the layers."""
    found = small.arrows_up([["errors"], ["config"], ["text"], ["jobs"]])
    assert found[0] == "saucier.parts.model -> saucier.config.model"


def test_names_in_many_folders_and_their_mirrors(small: House) -> None:
    """`model` stands in three folders; `config` and `parts` mirror each other, so that they count as one."""
    assert small.common_names([]) == ["model.py: config, parts, text"]
    assert small.common_names([["config", "parts"]]) == []


def test_one_importer_and_short_helpers(small: House) -> None:
    """What serves one place only is named with that place; members of a registry are what they should be."""
    assert "saucier.config.model <- saucier.parts.model" in small.one_importer([])
    assert "saucier.config.model <- saucier.parts.model" not in small.one_importer(["saucier.parts.model"])
    assert small.short_helpers() == ["saucier.config.model.half"]
    assert small.config_types() == ["saucier.config.model.A"]


def test_strongly_connected_groups() -> None:
    """Two circles that share no module are two; a module that only points at one is alone."""
    found = knots({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}, "e": {"a"}})
    assert sorted(map(sorted, found)) == [["a", "b"], ["c", "d"], ["e"]]


def test_the_ledger_raises_targets(tmp_path: Path) -> None:
    """A capability adds to the targets that it names; a limit is raised or lowered by hand."""
    path = tmp_path / "house.toml"
    path.write_text('layers = []\nregistries = []\nmirrors = []\n[limits]\nstatements = 20\n'
                    '[targets]\nstatements = 10\nfiles = 2\n'
                    '[[ledger]]\ncapability = "pruning"\nstatements = 5\n', encoding="utf-8")
    assert read_budget(path).targets == {"statements": 15, "files": 2}
    assert read_budget(path).limits == {"statements": 20}


@pytest.mark.slow
def test_reporting_only_always_ends_well(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--report` prints every measure with its limit and exits 0."""
    assert main(["--report", "--source", str(root / "src")]) == 0
    assert capsys.readouterr().out.count(" limit ") == 8
