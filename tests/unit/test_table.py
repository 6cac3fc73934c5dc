"""One table, read on a terminal, in a page and in Markdown."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.text import Text

from saucier.report.page import environment
from saucier.table import Table

FOUND = Table(("name", "count"), [(Text("a [b]", style="cyan"), "12"), ("c|d", "3")], numbers=(1,), title="both",
              caption="below")


def table(shown: Table) -> str:
    """Return a table as a page has it."""
    return str(environment().get_template("parts.html").module.table(shown))


def printed(shown: Table, width: int = 40) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(shown)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_terminal_shows_brackets_as_they_are_and_numbers_at_the_right() -> None:
    """A class that is called `y [b]` is not taken for markup."""
    assert printed(FOUND) == ["both", "name   count", "a [b]     12", "c|d        3", "below"]


def test_a_page_escapes_and_takes_text_for_what_it_says() -> None:
    made = table(Table(("<",), [(Text("a & b", style="bold"),)]))
    assert made == ('<div class="scroll"><table class="plain"><thead><tr><th>&lt;</th></tr></thead>'
                    "<tbody><tr><td>a &amp; b</td></tr></tbody></table></div>")


def test_markdown_keeps_bars_in_cells() -> None:
    assert FOUND.to_markdown().splitlines() == ["| name | count |", "|---|---|", "| a [b] | 12 |", "| c\\|d | 3 |"]


def test_no_heading_is_no_line() -> None:
    assert printed(Table(("", ""), [("a", "b")])) == ["a  b"]
    assert "<thead>" not in table(Table(("", ""), [("a", "b")]))


@pytest.mark.parametrize(("shown", "last"), [
    (Table(("a", "b"), [("x", "unbreakable")], folded=(1,)), "le"),
    (Table(("a", "b"), [("x", "unbreakable")], folded=(1,), cut_words=True), "x  unbreaka…"),
    (Table(("a", "b"), [("unbreakable", "x y")], folded=(1,), whole=True), "y")])
def test_what_is_too_long_is_broken_cut_or_pushes_the_rest(shown: Table, last: str) -> None:
    width = 14 if shown.whole else 12
    assert printed(shown, width)[-1].strip() == last


def test_marks_of_direction_are_written_out() -> None:
    """Else a label turns the direction of the columns after it."""
    assert printed(Table(("", ""), [("a\u202eb", "c")])) == ["a\\u202eb  c"]
