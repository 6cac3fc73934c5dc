"""What the Book is made of: rows in chapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["works", "partly", "not yet"]


@dataclass(frozen=True, slots=True)
class Row:
    """One system of the Book. `tests` are pytest addresses; `missing` says what a row that works partly still lacks."""

    number: str
    system: str
    tests: tuple[str, ...] = ()
    state: State = "not yet"
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Rows that belong together."""

    letter: str
    title: str
    rows: tuple[Row, ...]
