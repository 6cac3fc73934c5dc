"""`saucier diff`: what differs between two recipes or configs, and only that, by path. No torch.

Two nested values go in, a list of differences comes out; `render_diff` draws them side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from saucier.result import Result
from saucier.table import Table

ABSENT = "-"
"""Printed where one side has no such key."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One path whose values differ. `missing` distinguishes a side that has no such key from one that says null."""

    path: str
    left: Any
    right: Any
    missing: str | None = None
    """`left` or `right`, where that side has no such key."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {key: value for key, value in asdict(self).items() if key != "missing" or value}


@dataclass(frozen=True, slots=True)
class Differences(Result):
    """All that differs between two recipes or models."""

    names: tuple[str, str]
    found: tuple[Difference, ...]

    def view(self) -> Table | Text:
        """Return what `saucier diff` prints."""
        return render_diff(self.names, list(self.found))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"names": list(self.names), "differences": self.to_json()}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the differences alone."""
        return [one.as_json() for one in self.found]


def differences(left: Any, right: Any, path: str = "") -> Iterator[Difference]:
    """Yield what differs, in the order in which the left side says it.

    Values of different `kind` are one difference when they have different keys: those would mean nothing side by side.
    """
    left, right = key_items(left), key_items(right)
    if not (isinstance(left, dict) and isinstance(right, dict)) or (
            left.get("kind") != right.get("kind") and left.keys() != right.keys()):
        if left != right:
            yield Difference(path, left, right)
        return
    for key in [*left, *(key for key in right if key not in left)]:
        below = f"{path}.{key}" if path else key
        if key in left and key in right:
            yield from differences(left[key], right[key], below)
        else:
            yield Difference(below, left.get(key), right.get(key), "right" if key in left else "left")


def key_items(value: Any) -> Any:
    """Give the items of a list of parts names, so that a part that was put in between does not shift the others."""
    if not isinstance(value, list | tuple) or not any(isinstance(item, dict) for item in value):
        return list(value) if isinstance(value, tuple) else value
    named: dict[str, Any] = {}
    for index, item in enumerate(value):
        inner = item.get("inner") if isinstance(item, dict) else None  # of a residual: its sublayer
        kind = inner.get("kind") if isinstance(inner, dict) else None
        name = {"gated_feed_forward": "feed_forward"}.get(kind, str(kind)) if kind else str(index)
        named[name if name not in named else f"{name} {index}"] = item
    return named


STRUCTURE = {"layers", "block", "sublayers", "inner"}
"""Keys that every path through a stack goes through; a person reads `decoder.attention.projection`."""
RESIDUAL = re.compile(r"(sublayers\.[^.]+)\.kind$")
"""The kind of what is around a sublayer: pre, post or sandwich."""


def shorten_diff_path(path: str) -> str:
    """Leave out of a path what only holds the tree together; `--json` has it whole."""
    path = RESIDUAL.sub(r"\1.residual", path)
    return ".".join(key for key in path.split(".") if key not in STRUCTURE) or path


def format_value(value: Any, depth: int = 2) -> str:
    """Write a value on one line: a part as `rotary(base=10000)`, settings of none left out, those too deep as `(...)`.
    """
    value = key_items(value)
    if isinstance(value, dict):
        kind = str(value.get("kind", ""))
        settings = {key: item for key, item in value.items() if key != "kind" and item is not None}
        inside = [f"{key}={format_value(item, depth - 1)}" for key, item in settings.items()] if depth else ["..."]
        return f"{kind}({', '.join(inside)})" if settings or not kind else kind
    if isinstance(value, list):
        return "[" + ", ".join(format_value(item, depth) for item in value) + "]"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def fold_rows(found: list[Difference]) -> list[tuple[list[str], str, str]]:
    """Put neighbouring paths that end in the same key and show the same change into one row."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for difference in found:
        left, right = (ABSENT if difference.missing == side else format_value(value)
                       for side, value in (("left", difference.left), ("right", difference.right)))
        grouped.setdefault((difference.path.rpartition(".")[2], left, right), []).append(difference.path)
    return [(paths, left, right) for (_, left, right), paths in grouped.items()]


def render_diff(names: tuple[str, str], found: list[Difference]) -> Table | Text:
    """Return what `saucier diff` prints: a row for each change, after the paths where it happens."""
    if not found:
        return Text(f"{names[0]} and {names[1]} say the same", style="green")
    rows = [("\n".join(map(shorten_diff_path, paths)), left, right) for paths, left, right in fold_rows(found)]
    return Table(("", *names), rows, folded=(1, 2), colours={0: "cyan"}, heading_style="bold green", gap=3)
