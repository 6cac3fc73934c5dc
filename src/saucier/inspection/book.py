"""`saucier recipes --book`: docs/book.md, every row of the Book with its recipes, its tests and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from saucier.inspection.book_rows import CHAPTERS
from saucier.inspection.book_types import Chapter, Row
from saucier.recipes import Recipe, names, recipe

HEAD = """# The Book

Every system that Saucier is to make, in the order of its chapters: the recipes that cook it, the tests that show it,
and how far it has come. Written by `saucier recipes --book`; a test holds this page current.

"""
COLUMNS = ("", "system", "recipes", "shown by", "state")


def markdown() -> str:
    """Return the whole page."""
    serving = by_row([recipe(name) for name in names()])
    return HEAD + summary() + "\n" + "\n".join(chapter_text(chapter, serving) for chapter in CHAPTERS)


def by_row(recipes: Sequence[Recipe]) -> dict[str, list[str]]:
    """Return the names of the recipes that serve each row."""
    serving: dict[str, list[str]] = {}
    for one in recipes:
        for number in one.book:
            serving.setdefault(number, []).append(one.name)
    return serving


def all_rows() -> list[Row]:
    """Return the rows of all chapters."""
    return [row for chapter in CHAPTERS for row in chapter.rows]


def summary() -> str:
    """Count the rows by state."""
    states = [row.state for row in all_rows()]
    works, partly, not_yet = (states.count(state) for state in ("works", "partly", "not yet"))
    return f"{works} work, {partly} work partly, {not_yet} are not there yet.\n"


def chapter_text(chapter: Chapter, serving: Mapping[str, Sequence[str]]) -> str:
    """Return a chapter as a heading and a table."""
    lines = [f"## {chapter.letter}. {chapter.title}", "", cells(COLUMNS), cells(["---"] * len(COLUMNS))]
    return "\n".join(lines + [row_text(row, serving.get(row.number, ())) for row in chapter.rows]) + "\n"


def row_text(row: Row, recipes: Sequence[str]) -> str:
    """Return one line of a table."""
    state = f"{row.state}; missing: {row.missing}" if row.missing else row.state
    shown = "<br>".join(link(test) for test in row.tests)
    return cells([row.number, row.system, ", ".join(f"`{name}`" for name in recipes), shown, state])


def link(test: str) -> str:
    """Return the name of a test as a link from the page to its file; of a benchmark likewise."""
    file, _, function = test.partition("::")
    return f"[{(function or file).removeprefix('test_').replace('_', ' ')}](../{file})"


def cells(values: Sequence[str]) -> str:
    """Return one line of a markdown table."""
    return "|" + "|".join(f" {value} " if value else " " for value in values) + "|"
