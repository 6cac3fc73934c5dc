"""Every section of the benchmarks runs with tiny sizes; one that fails or lacks something does not end the others."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from benchmarks import run
from benchmarks.section import LackingError, Row, Section, markdown

NO_NUMBER = re.compile(r"\b(nan|-?inf(inity)?|None)\b", re.IGNORECASE)
"""What no cell with a figure says."""


def finite(row: Row) -> bool:
    """Whether a row's figures are numbers."""
    cells = f"{row.ours} {row.theirs}"
    figures = re.search(r"\d", cells) and not NO_NUMBER.search(cells)
    return bool(figures) and math.isfinite(row.ratio or 0)


@pytest.mark.nightly
@pytest.mark.parametrize("name", run.NAMES)
def test_a_section_runs_with_tiny_sizes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the long ones keep what is finished in `runs`
    try:
        section = run.measure(name, quick=True)
    except LackingError as error:
        pytest.skip(str(error))
    assert section.rows
    assert [row for row in section.rows if not finite(row)] == []
    assert markdown(section, "now").startswith(f"## {section.title}\n")


def test_a_section_that_fails_is_one_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                         tmp_path: Path) -> None:
    """The others run on, the traceback is on standard error, nothing of it is written, and the exit code says so."""
    def measure(name: str, quick: bool) -> Section:
        if name == "opening":
            raise ValueError("no such thing\nand more")
        if name == "reading":
            raise LackingError("it needs a file")
        return Section(name, "", [Row("speed", "1")])

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.md")
    monkeypatch.setattr("sys.argv", ["benchmarks", "opening", "reading", "startup"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert "| opening | not measured: ValueError: no such thing |" in said.out
    assert "| reading | not measured: it needs a file |" in said.out
    assert "| speed | 1 |" in said.out
    assert "Traceback" in said.err
    assert "not measured" not in (tmp_path / "results.md").read_text(encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["benchmarks", "reading", "startup"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 0


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LackingError, match="transformers, accelerate"):
        run.measure("finetuning", quick=True)
