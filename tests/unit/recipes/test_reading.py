"""Recipes are plain data with a line for every value, and nothing in a file can do more than that."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saucier.errors import InputError
from saucier.recipes import recipe
from saucier.recipes.source import read_value, read_yaml


def test_every_value_knows_its_line() -> None:
    source = read_yaml("a: 1\nb:\n  c: [x, y]\n  d: {e: 2}\n", "own.yaml")
    assert source.values == {"a": 1, "b": {"c": ["x", "y"], "d": {"e": 2}}}
    assert source.where(("b", "d", "e")) == "own.yaml:4"
    assert source.where(("b", "c", 1)) == "own.yaml:3"
    assert source.where(("b", "new", "deep")) == "own.yaml:2"
    assert source.where(("nothing",)) == "own.yaml:1"


@pytest.mark.parametrize(("text", "value"), [
    ("no", "no"), ("on", "on"), ("yes", "yes"), ("true", True), ("false", False), ("null", None), ("~", None),
    ("", None),
    ("1", 1), ("010", 10), ("1_000", 1000), ("-3", -3), ("0x10", "0x10"), ("3e-4", 3e-4), (".5", 0.5), ("1.", 1.0),
    ("1:30", "1:30"),
    ("2020-01-01", "2020-01-01"), ("[a, 1]", ["a", 1]), ("{kind: muon}", {"kind": "muon"}), ('"1"', "1")])
def test_words_and_numbers_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = read_value(text, "here")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.slow
@pytest.mark.parametrize("text",
                         ["a: &x [1]\nb: *x", "a: !!python/object/apply:os.system [ls]", "a: 1\na: 2", "? [a]\n: 1",
                          "a: {",
                          "a:\n\tb: 1", "[1, 2]", "word", "", "a: \x00", "[" * 3000, "a: !!int x"])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"own\.yaml"):
        read_yaml(text, "own.yaml")


def test_a_file_that_would_unfold_to_gigabytes_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    begin = time.perf_counter()
    with pytest.raises(InputError, match="aliases"):
        read_yaml("\n".join(lines), "bomb.yaml")
    assert time.perf_counter() - begin < 5


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(number: float) -> None:
    found = read_value(repr(number), "here")
    assert math.isclose(found, number, rel_tol=1e-15) or found == number


@given(st.text(max_size=60))
def test_no_text_makes_it_fall_over(text: str) -> None:
    with contextlib.suppress(InputError):  # any other error fails the test
        assert isinstance(read_yaml(text, "own.yaml").values, dict)


@pytest.mark.parametrize(("name", "change", "told"), [
    ("bart-nano", "objective.noises=[{kind: foo}]", r"objective\.noises\.0\.kind: there is no 'foo'"),
    ("mbart-nano", "data.alpha=-1", r"data\.alpha: should be greater than or equal to 0"),
    ("mbart-nano", "data.files=[a.txt]", r"data\.files: unknown key; known: kind, languages"),
    ("m2m-nano", "data.languages.alfa=1", r"data\.languages\.alfa: unknown key; did you mean 'alpha'\?")])
def test_one_fault_is_one_line_with_its_own_key(name: str, change: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as found:
        recipe(name, [change])
    assert len(str(found.value).splitlines()) == 1


def test_a_pipe_is_no_recipe(tmp_path: Path) -> None:
    """To read it would be to wait for ever."""
    os.mkfifo(tmp_path / "recipe.yaml")
    with pytest.raises(InputError, match=r"recipe\.yaml: is no file; give another"):
        recipe(tmp_path / "recipe.yaml")
