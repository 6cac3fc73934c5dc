"""Results: plain values, and one view for a terminal and a notebook."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from saucier.config.base import Config
from saucier.result import Result
from saucier.table import Table


@dataclass(frozen=True, slots=True)
class Measured(Result):
    value: float
    names: tuple[str, ...]

    def view(self) -> Table:
        return Table(("name",), [(one,) for one in self.names], colours={0: "cyan"})


class Document(Config, Result):
    value: float


def test_plain_values_of_a_dataclass_and_of_a_document() -> None:
    assert Measured(float("nan"), ("a", "b")).to_dict() == {"value": None, "names": ["a", "b"]}
    assert Document(value=2.0).to_dict() == Document(value=2.0).to_json() == {"value": 2.0}


def test_a_notebook_shows_what_a_terminal_does() -> None:
    shown = Measured(1.0, ("<b>", "c"))._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown.replace("<pre", "")
    assert "color: #008080" in shown or "color: #" in shown


def test_a_prompt_shows_what_a_terminal_does() -> None:
    """Not every field in one line; one's own `__repr__` stays."""
    assert repr(Measured(1.0, ("one", "two"))) == "name\none\ntwo"

    class Named(Measured):
        def __repr__(self) -> str:
            return "named"

    assert repr(Named(1.0, ())) == "named"


def test_a_result_that_does_not_say_how_it_is_shown_is_a_fault_of_ours() -> None:
    with pytest.raises(NotImplementedError, match="Document"):
        Document(value=1.0).view()
