"""Rows in memory become a file of JSON lines: the same rows the same file, whatever holds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from saucier.errors import InputError
from saucier.text.reading.memory_rows import rows_to_file

ROWS = [{"text": "Größe", "label": "a", "score": 0.5}, {"text": "two\nlines", "label": None, "score": 2.0}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def frame(kind: str) -> Any:
    """Return ROWS as a dataframe of a library."""
    return pytest.importorskip(kind).DataFrame(COLUMNS)


class Interchanged:
    """A dataframe that knows the interchange protocol alone."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return pyarrow.table(COLUMNS).__dataframe__(nan_as_null, allow_copy)


HOLDERS: dict[str, Callable[[], Any]] = {
    "mappings": lambda: ROWS, "generator": lambda: (row for row in ROWS), "table": lambda: pyarrow.table(COLUMNS),
    "batch": lambda: pyarrow.RecordBatch.from_pylist(ROWS), "columns": lambda: COLUMNS,
    "reader": lambda: pyarrow.table(COLUMNS).to_reader(), "pandas": lambda: frame("pandas"),
    "polars": lambda: frame("polars"), "interchange": Interchanged,
    "numpy": lambda: [{**row, "score": np.float32(row["score"])} for row in ROWS]}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_same_rows_are_the_same_file(holder: str, tmp_path: Path) -> None:
    path = rows_to_file(HOLDERS[holder](), tmp_path, "train")
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == ROWS
    assert path == rows_to_file(ROWS, tmp_path, "train")
    assert [one.name for one in (tmp_path / "rows").iterdir()] == [path.name]


def test_other_rows_are_another_file(tmp_path: Path) -> None:
    one, two = (rows_to_file(texts, tmp_path, "rows") for texts in (["a", "b"], ["a", "c"]))
    assert one != two
    assert one.read_text() == '{"text": "a"}\n{"text": "b"}\n'


def test_every_row_of_a_list_has_all_columns(tmp_path: Path) -> None:
    path = rows_to_file([{"text": "a"}, {"text": "b", "label": 1}], tmp_path, "x")
    assert path.read_text() == '{"text": "a", "label": null}\n{"text": "b", "label": 1}\n'


def test_what_is_missing_is_null(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"a": float("nan"), "b": pandas.NaT, "c": pandas.NA}]
    assert rows_to_file(rows, tmp_path, "x").read_text() == '{"a": null, "b": null, "c": null}\n'
    gaps = pandas.DataFrame({"text": ["a", "b"], "label": [1, None]})
    assert rows_to_file(gaps, tmp_path, "y").read_text() == \
        '{"text": "a", "label": 1.0}\n{"text": "b", "label": null}\n'


itself: list = []
itself.append(itself)


@pytest.mark.parametrize(("rows", "says"), [
    (3, "train: is int, and no rows"), ("train.csv", "train: is str, and no rows"), ([], "train: has no rows"),
    ([{}], "train, row 1: has no columns"), ([{"a": 1}, 3], "train, row 2: is int, and no mapping or text"),
    ([{1: "a"}], "train, row 1: 1 is no name of a column"), ([{"a": b"x"}], "row 1, column 'a': is bytes"),
    ([{"a": [object()]}], "row 1, column 'a': is object"), ([{"a": itself}], "row 1: cannot be written as JSON"),
    ({"a": [1], "b": [1, 2]}, "train: cannot be read as a table"), (pyarrow.table({}), "train: has no columns"),
    (pyarrow.Table.from_arrays([pyarrow.array([1])] * 2, ["a", "a"]), "train: has two columns 'a'"),
    (pyarrow.table({"a": pyarrow.array([], "string")}), "train: has no rows"),
])
def test_what_is_no_rows_is_refused_and_leaves_nothing(rows: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        rows_to_file(rows, tmp_path / "run", "train")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
