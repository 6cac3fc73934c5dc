"""Plain values: as JSON has them, and numbers as a person reads them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest

from saucier.plain import format_bytes, format_duration, format_quantity, json_value


@pytest.mark.parametrize(("value", "text"), [
    (0, "0"), (7, "7"), (0.5, "0.50"), (999, "999"), (999.6, "1.00 k"), (1000, "1.00 k"), (12_345, "12.3 k"),
    (124_439_808, "124 M"), (1.5e9, "1.50 G"), (3.14e23, "314 Z"), (9.996e5, "1.00 M"),
])
def test_a_quantity_has_three_digits_and_a_prefix(value: float, text: str) -> None:
    assert format_quantity(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (13_631_488, "13.6 MB")])
def test_bytes_are_decimal(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [
    (0.31, "0.31 s"), (9.997, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3599.6, "1 h 0 min"),
    (3 * 3600 + 600, "3 h 10 min"), (52 * 3600, "2 d 4 h"),
    (1e11, "3,169 years"),
])
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@dataclass(frozen=True, slots=True)
class Pair:
    first: Any
    second: Any


def test_json_has_null_where_a_number_is_not_defined() -> None:
    """At any depth, and dataclasses as mappings; a class itself is no value of it."""
    plain = json_value({"a": Pair(math.nan, (Pair(1.5, "x"), -math.inf)), "b": [None, True, 3]})
    assert plain == {"a": {"first": None, "second": [{"first": 1.5, "second": "x"}, None]}, "b": [None, True, 3]}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert json_value(Pair) is Pair
