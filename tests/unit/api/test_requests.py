"""What a person gives in words or in memory: files, rows and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.api.requests import column_names, row_files
from saucier.errors import InputError


def test_files_stay_files_and_rows_become_one(tmp_path: Path) -> None:
    assert row_files(None, tmp_path, "train") == []
    assert row_files("a.csv", tmp_path, "train") == row_files([Path("a.csv")], tmp_path, "train") == ["a.csv"]
    assert not list(tmp_path.iterdir())
    [made] = row_files([{"text": "a"}], tmp_path, "train")
    assert Path(made).read_text() == '{"text": "a"}\n'
    assert Path(made).parent == tmp_path / "rows"
    with pytest.raises(InputError, match="train, row 2: is PosixPath, and no mapping or text"):
        row_files([{"text": "a"}, Path("a.csv")], tmp_path, "train")


def test_columns_have_roles() -> None:
    assert column_names(["body", "label=stars", "pair=a=b"]) == {"": "body", "label": "stars", "pair": "a=b"}
    assert column_names({"text": "body"}) == {"text": "body"}
    with pytest.raises(InputError, match=r"--column label: '' is no name of a column; give NAME, or ROLE=NAME"):
        column_names(["label="])
