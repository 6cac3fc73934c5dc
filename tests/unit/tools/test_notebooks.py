"""The notebooks of the docs: short, in order, over public names alone; `make notebooks` runs them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from tools.notebooks import clean, list_notebooks, to_markdown

import saucier
from saucier import config

NOTEBOOKS = list_notebooks()
OPEN = ("saucier", "saucier.config", "saucier.testing", "saucier.parts.kernels")
"""Modules of ours that a notebook may import from; the last is what docs/extending.md shows for kernels."""


def code_of(path: Path) -> list[str]:
    """Return the code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_six() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"first-model", "own-labels", "published-checkpoint", "compare-two",
                                                 "own-part", "long-documents"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_names_only(path: Path) -> None:
    tree = ast.parse("\n".join(code_of(path)))
    nodes = list(ast.walk(tree))
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module is not None}
    assert {one for one in modules if one.split(".")[0] == "saucier"} <= set(OPEN)
    used = {(node.value.id, node.attr) for node in nodes if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)}
    assert {name for where, name in used if where == "saucier"} <= set(saucier.__all__)
    assert all(hasattr(config, name) for where, name in used if where == "c")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_is_small_and_names_no_machine(path: Path) -> None:
    """Outputs are those of a run without errors; a folder of the machine is in none."""
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert notebook["nbformat"] == 4 and len(text) < 100_000
    assert not [one for one in ("/tmp/", "/home/", "/root/", "/work/", "\\u001b[") if one in text]
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", ())]
    assert outputs and not [one for one in outputs if one["output_type"] == "error"]
    assert notebook == clean(json.loads(text)), "store what `make notebooks WHAT=write` stores"


def test_a_page_shows_code_and_what_it_printed(tmp_path: Path) -> None:
    """Text is escaped; of a result that has HTML that is shown, and nothing of it is read as Markdown."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": "print('<a>')", "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["<a>\n", "*b*\n"]},
            {"output_type": "execute_result", "data": {"text/plain": "no", "text/html": ["<pre>\n", "*yes*</pre>"]}}]}]
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    page = to_markdown(path)
    assert page.startswith("# Title\ntext\n\n```python\nprint('<a>')\n```\n\n")
    assert '<div class="output"><pre>&lt;a&gt;\n*b*</pre></div>' in page
    assert '<div class="output">\n<pre>\n*yes*</pre>\n</div>' in page and "no" not in page.partition("print")[2][:90]


def test_pieces_of_one_stream_are_one_output() -> None:
    """A library may print a line in pieces; numbers of cells and addresses of objects are left out."""
    pieces = [{"output_type": "stream", "name": "stdout", "text": text} for text in ("a ", "b")]
    shown = {"output_type": "display_data", "metadata": {}, "transient": {"display_id": "7"},
             "data": {"text/plain": "<x at 0x7f00>"}}
    notebook = {"metadata": {"x": 1}, "cells": [{"cell_type": "code", "metadata": {"t": 1}, "source": "", "id": "c",
                                                 "execution_count": 3, "outputs": [*pieces, shown]}]}
    cell = clean(notebook)["cells"][0]
    assert (cell["execution_count"], cell["metadata"]) == (None, {})
    assert [one.get("text") for one in cell["outputs"]] == ["a b", None]
    assert cell["outputs"][1]["data"] == {"text/plain": "<x>"} and "transient" not in cell["outputs"][1]
