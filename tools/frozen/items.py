"""`Item`: what is kept of one named thing, and how two of them are compared.

- `Exact`: a short text, or the hash of a long one; equal on every machine.
- `Bits`: a hash of floats, equal under `tools/same_bits.py` on one build of PyTorch; and figures that are near on any.
- `Tokens`: ids that a model writes, and how many of the first hold out against rounding; others may differ elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIGITS = 12
"""Hexadecimal digits of a hash: 48 bits."""
TOLERANCE = {"starts": 1e-5, "adapters": 1e-5, "steps": 2e-3}
"""By part: how far figures may be apart on machines that do not give the same bits, relative, or absolute below 1."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Equal everywhere."""

    value: str


@dataclass(frozen=True, slots=True)
class Bits:
    """Floats."""

    bits: str
    """A hash of them."""
    figures: tuple[float, ...]
    """What is near on every machine."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a model writes."""

    ids: tuple[int, ...]
    sure: int
    """So many of the first ids are the same with weights that are moved by more than rounding moves sums."""


Item = Exact | Bits | Tokens
Items = dict[str, Item]


def digest(*values: Any) -> str:
    """Hash arrays (with their type and shape), bytes, and everything that JSON can say."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype.str}{value.shape}".encode())
            found.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, bytes):
            found.update(value)
        else:
            found.update(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())
    return found.hexdigest()[:DIGITS]


def short(value: Any, most: int = 100) -> Exact:
    """Keep a plain value as it is written in JSON, or its hash where that is long."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return Exact(text if len(text) <= most else f"#{digest(value)}")


def figures(values: NDArray[Any]) -> tuple[float, float]:
    """Return a tensor's norm, and its product with a fixed wave: what a changed sign or place would change."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    wave = np.cos(np.arange(len(flat)))
    return rounded(float(np.linalg.norm(flat))), rounded(float(flat @ wave))


def rounded(value: float) -> float:
    """Keep eight digits."""
    return float(f"{value:.8g}")


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Group the names of tensors that differ only in numbers, such as those of layers."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"\d+", "*", name), []).append(name)
    return found


def as_json(item: Item) -> Any:
    """Return an item as it stands in the file."""
    match item:
        case Exact(value=value):
            return value
        case Bits(bits=bits, figures=near):
            return {"bits": bits, "figures": list(near)}
        case Tokens(ids=ids, sure=sure):
            return {"ids": " ".join(map(str, ids)), "sure": sure}


def from_json(value: Any) -> Item:
    """Read an item."""
    if isinstance(value, str):
        return Exact(value)
    if "bits" in value:
        return Bits(value["bits"], tuple(value["figures"]))
    return Tokens(tuple(int(one) for one in value["ids"].split()), value["sure"])


def differences(known: Mapping[str, Item], now: Mapping[str, Item], *, same_machine: bool) -> Iterator[str]:
    """Yield a line for each item that changed, is gone, or is new."""
    for name in sorted({*known, *now}):
        if name not in now:
            yield f"gone     {name}: was {shown(known[name])}"
        elif name not in known:
            yield f"new      {name}: is {shown(now[name])}"
        elif (found := difference(name, known[name], now[name], same_machine=same_machine)) is not None:
            yield f"changed  {name}: {found}"


def difference(name: str, known: Item, now: Item, *, same_machine: bool) -> str | None:
    """Say what changed in an item; None: nothing that can be told from this machine."""
    match known, now:
        case Bits(), Bits():
            gap = distance(known.figures, now.figures)
            limit = TOLERANCE[name.split("/")[0]]
            near = f"figures differ by {gap:.1e}, and {limit:.0e} is rounding"
            moved = known.bits != now.bits if same_machine else gap > limit
            return f"{shown(known)} → {shown(now)}; {near}" if moved else None
        case Tokens(), Tokens():
            count = None if same_machine else min(known.sure, now.sure)
            moved = known.ids[:count] != now.ids[:count] or (same_machine and len(known.ids) != len(now.ids))
            return f"{shown(known)} → {shown(now)}" if moved else None
        case _:
            return None if known == now else f"{shown(known)} → {shown(now)}"


def distance(one: tuple[float, ...], two: tuple[float, ...]) -> float:
    """Return by how much figures differ: relative, absolute below 1, infinite where there are not as many."""
    if len(one) != len(two):
        return math.inf
    return max((abs(a - b) / max(1.0, abs(a), abs(b)) for a, b in zip(one, two, strict=True)), default=0.0)


def shown(item: Item) -> str:
    """Show an item in a line."""
    match item:
        case Exact(value=value):
            return value
        case Bits(bits=bits):
            return bits
        case Tokens(ids=ids):
            return " ".join(map(str, ids))
