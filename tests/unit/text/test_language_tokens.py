"""Tokens of languages: the spellings of each family, the names that a person may use, and what they replace."""

from __future__ import annotations

import pytest

from saucier.errors import InputError
from saucier.text.tokenizer.language_tokens import find_language_id, mark_language, shorten_language

KNOWN = {"de_DE": 10, "en_XX": 11, "zho_Hans": 12, "zho_Hant": 13, "__fr__": 14, ">>pt<<": 15, "<python>": 16}


@pytest.mark.parametrize(("token", "name"), [("de_DE", "de"), ("__fr__", "fr"), ("zho_Hans", "zho"), (">>pt_br<<",
                                                                                                      "pt_br"),
                                             ("<mask>", None), ("word", None), ("a_b", None)])
def test_spellings(token: str, name: str | None) -> None:
    assert shorten_language(token) == name


@pytest.mark.parametrize(("name", "number"), [("de", 10), ("de_DE", 10), ("EN", 11), ("zho_Hant", 13), ("fr", 14),
                                              ("__fr__", 14), ("pt", 15), ("python", 16)])
def test_names_that_are_understood(name: str, number: int) -> None:
    assert find_language_id(name, KNOWN, "--x") == number


def test_names_that_are_not() -> None:
    with pytest.raises(InputError, match=r"--x: 'zho' is several languages here: zho_Hans, zho_Hant"):
        find_language_id("zho", KNOWN, "--x")
    with pytest.raises(InputError, match=r"knows no language 'pyton'.*python"):
        find_language_id("pyton", KNOWN, "--x")


def test_the_language_of_a_frame_is_replaced_where_it_stands() -> None:
    assert mark_language([14, 1, 2, 3], 10, KNOWN) == [10, 1, 2, 3]
    assert mark_language([1, 2, 3, 11], 10, KNOWN) == [1, 2, 3, 10]
    assert mark_language([1, 2, 3], 10, KNOWN) is None
