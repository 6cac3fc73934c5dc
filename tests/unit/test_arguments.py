"""The arguments of public functions are checked against their signature."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest

from saucier.arguments import (
    Changes,
    Files,
    Help,
    Place,
    Rows,
    check_argument,
    describe_kind,
    is_a,
    not_imported,
    public,
)
from saucier.errors import InputError


@pytest.mark.parametrize(("kind", "right", "wrong"), [
    (int, [1, -3], [True, 1.0, "1", None]),
    (float, [1, 0.5], [False, "1", None]),
    (bool, [True], [1, "yes"]),
    (str | None, ["", None], [b"", 3]),
    (Place, ["a", Path("a")], [3, None, ["a"]]),
    (Files, ["a", ["a", Path("b")], ()], [3, [3], {"a": 1}]),
    (Rows, ["a", [{"text": "x"}], pa.table({"text": ["x"]})], [3, [3], [{3: "x"}]]),
    (Changes, [{"a": {"b": 1}}, ["a=1"]], ["a=1" and 3, {1: 2}, [1]]),
    (Literal["a", "b"], ["a"], ["c", 1]),
    (Sequence[int], [[1, 2]], ["12", [True], [1.5]]),
    (Any, [3, None], []),
])
def test_a_value_is_of_the_kind_that_its_annotation_names(kind: Any, right: list[object], wrong: list[object]) -> None:
    assert [one for one in right if not is_a(one, kind)] == []
    assert [one for one in wrong if is_a(one, kind)] == []


def test_a_class_that_was_not_imported_has_no_values() -> None:
    stand_in = not_imported("a.module.that.is.not", "There")
    assert not is_a(3, stand_in)
    assert is_a(Path("a"), not_imported("pathlib", "Path"))
    assert is_a("a", str | stand_in)


@pytest.mark.parametrize(("value", "said"), [
    ("3", "count: is str '3'; give a whole number"),
    (0, "count: is 0; give a number of at least 1 and at most 5"),
    (9, "count: is 9; give a number of at least 1 and at most 5"),
])
def test_what_is_wrong_is_one_line(value: object, said: str) -> None:
    with pytest.raises(InputError) as raised:
        check_argument("count", value, Annotated[int | None, Help("How many.", minimum=1, maximum=5)])
    assert str(raised.value) == said


def test_no_number_is_within_no_limits() -> None:
    with pytest.raises(InputError, match="share: is nan"):
        check_argument("share", float("nan"), Annotated[float, Help("How much.")])


def test_kinds_are_named_in_words() -> None:
    assert describe_kind(Files) == "text or a path or a list of text or a path"
    assert describe_kind(Mapping[str, Any] | None) == "a mapping"
    assert describe_kind(os.PathLike[str]) == "a path"


def test_a_public_function_checks_what_it_is_given() -> None:
    @public
    def act(name: Annotated[str, Help("Its name.")], *, count: Annotated[int, Help("How many.", minimum=0)] = 1) -> str:
        return name * count

    assert act("a", count=2) == "aa"
    with pytest.raises(InputError, match=r"^name: is int 3; give text$"):
        act(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^count: is -1; give a number of at least 0$"):
        act("a", count=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'number'"):
        act("a", number=3)  # type: ignore[call-arg]
