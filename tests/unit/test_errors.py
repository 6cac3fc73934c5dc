"""Errors for people: one line, whatever names stand in them."""

from __future__ import annotations

import pytest

from saucier.errors import LONGEST_PART, InputError


@pytest.mark.parametrize(("where", "shown"), [
    ("config.json", "config.json: is wrong; mend it"), (None, "is wrong; mend it"), ("", "'': is wrong; mend it"),
    (" ", "' ': is wrong; mend it"), ("a\nb", r"a\nb: is wrong; mend it"), ("\x1b[31m", r"\x1b[31m: is wrong; mend it"),
])
def test_the_place_is_shown_whatever_its_name(where: str | None, shown: str) -> None:
    assert str(InputError("is wrong", where=where, remedy="mend it")) == shown


def test_names_of_any_length_are_cut_in_the_middle() -> None:
    text = str(InputError("is wrong", where="x" * 10**6))
    assert LONGEST_PART < len(text) < LONGEST_PART + 30 and text.endswith("x: is wrong")


def test_more_faults_are_lines_of_their_own() -> None:
    assert str(InputError("is wrong", where="a", more=["b: too"])) == "a: is wrong\nb: too"
