"""docs/book.md is current, complete, and says nothing that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tools.book import CHAPTERS, BookRow, book_page, list_rows, recipes_by_row

from saucier.recipes import names, recipe

NUMBERS = [row.number for row in list_rows()]


def test_the_page_is_current(root: Path) -> None:
    page = (root / "docs" / "book.md").read_text(encoding="utf-8")
    assert page == book_page(), "run `make book`"


def test_every_row_stands_in_its_chapter_once_and_in_order() -> None:
    counted = [f"{chapter.letter}{index}" for chapter in CHAPTERS for index in range(1, len(chapter.rows) + 1)]
    assert counted == NUMBERS


def test_the_book_is_complete(shared: Path) -> None:
    owed = re.findall(r"^\| ([A-H]\d+) \|", (shared / "BOOK.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert owed == NUMBERS


@pytest.mark.sampled
@pytest.mark.parametrize("row", list_rows(), ids=lambda row: row.number)
def test_what_shows_a_row_is_there(row: BookRow, root: Path) -> None:
    for test in row.tests:
        file, _, function = test.partition("::")
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert not function or function in defined, f"{test} is not there"


@pytest.mark.parametrize("row", list_rows(), ids=lambda row: row.number)
def test_a_state_has_its_grounds(row: BookRow) -> None:
    assert bool(row.tests) == (row.state != "not yet")
    assert bool(row.missing) == (row.state == "partly")


@pytest.mark.sampled
@pytest.mark.parametrize("name", names())
def test_recipes_serve_rows_that_are_begun(name: str) -> None:
    states = {row.number: row.state for row in list_rows()}
    served = recipe(name).book
    assert served
    assert [number for number in served if states.get(number, "not yet") == "not yet"] == []


def test_a_recipe_is_found_at_its_rows() -> None:
    assert "bert-nano" in recipes_by_row([recipe("bert-nano")])["B3"]
    assert "`bert-nano`" in next(line for line in book_page().splitlines() if line.startswith("| B3 |"))
