"""Plain values: what JSON holds, the first place where two of them differ, and numbers as a person reads them (counts,
bytes, seconds).

Decimal units: 1 GB is 10^9 bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

HANDED_IN: dict[str, Callable[..., Any]] = {}
"""What a low module calls and a high one defines, by name; `saucier/__init__` fills it."""
VERSION = "0.2.0.dev0"
"""Of this package: `saucier.__version__`, and what a wheel is called; `.dev0` until it is released (CHANGELOG.md)."""


Difference = tuple[str, Any, Any]
"""The path of keys, and the value at each side; None where there is none."""


def library_of(array: Any) -> Any:
    """Return the module that an array is of, numpy or torch, for what both spell alike."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def first_difference(left: Any, right: Any, path: str = "") -> Difference | None:
    """Find the first place where two values differ; None stands for what one side lacks."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        pairs = [(str(key), left.get(key), right.get(key)) for key in dict.fromkeys([*left, *right])]
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        pairs = [(str(place), *both) for place, both in enumerate(zip_longest(left, right))]
    else:
        return None if left == right else (path, left, right)
    found = (first_difference(mine, theirs, f"{path}.{key}" if path else key) for key, mine, theirs in pairs)
    alike = isinstance(left, Mapping) or len(left) == len(right)
    return next((one for one in found if one is not None), None if alike else (path, left, right))


PREFIXES = ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365.25 * 86400


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses as mappings, tuples as lists, null where a number is not finite,
    and a path as text.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return json_value(asdict(value))
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {name: json_value(one) for name, one in value.items()}
        case list() | tuple():
            return [json_value(one) for one in value]
        case PurePath():
            return str(value)
        case _:
            return value


def format_quantity(value: float) -> str:
    """Return a number with three digits and its prefix: `124 M`, `1.50 G`; small whole numbers stay as they are."""
    for factor, prefix in PREFIXES:
        if abs(value) >= factor * 0.9995:
            return f"{format_three_digits(value / factor)} {prefix}"
    return f"{value:g}" if value == int(value) else format_three_digits(value)


def format_three_digits(value: float) -> str:
    """Return a number below 1000 with three digits: 1.23, 12.3, 123."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def format_bytes(count: float) -> str:
    """Return a size in bytes: `0 B`, `1.50 GB`."""
    return f"{count:.0f} B" if abs(count) < 1000 else f"{format_quantity(count)}B"


def format_duration(seconds: float) -> str:
    """Return a span of time in its two largest units: `0.31 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < MINUTE - 0.5:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.0f} s"
    if seconds < HOUR - 0.5:
        return f"{int(seconds + 0.5) // MINUTE} min {int(seconds + 0.5) % MINUTE:d} s"
    if seconds < DAY - MINUTE / 2:
        minutes = round(seconds / MINUTE)
        return f"{minutes // 60} h {minutes % 60} min"
    if seconds >= 2 * YEAR:
        return f"{seconds / YEAR:,.0f} years"
    hours = round(seconds / HOUR)
    return f"{hours // 24:,} d {hours % 24} h"
