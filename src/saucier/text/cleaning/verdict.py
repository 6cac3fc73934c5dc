"""Why a document was dropped: what a page rule gives back, and a judge of pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from saucier.text.cleaning.page import Page


@dataclass(frozen=True, slots=True)
class Fault:
    """What a rule has against a document."""

    reason: str
    """In words, with the measured value."""
    line: int | None = None
    """The line inside the document where it shows, from 1; None where it is about the whole."""


PageJudge = Callable[[Page], Fault | None]
"""Tells what is wrong with a page, or None."""


def outside(what: str, value: float, least: float, most: float) -> Fault | None:
    """Return the fault of a value that is too small or too large; whole numbers are shown as such."""
    if value < least:
        return Fault(f"{shown(value)} {what}, under {shown(least)}")
    if value > most:
        return Fault(f"{shown(value)} {what}, over {shown(most)}")
    return None


def shown(value: float) -> str:
    """Return a number as a reader wants it: whole, or with three decimals."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


ENDLESS = float("inf")
