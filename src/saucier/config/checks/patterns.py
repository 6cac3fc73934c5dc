"""Illegal combinations around visibilities that differ by head, and around a global input."""

from __future__ import annotations

from saucier.config.layers import SelfAttention
from saucier.config.positions import GlobalLocal
from saucier.config.visibility import ByHead, FirstTokens, global_terms, terms_of
from saucier.errors import InputError


def check_patterns(path: str, attention: SelfAttention) -> None:
    """Terms by head are shared out evenly among the heads, and labels know of as many global tokens as there are."""
    named = {term.otherwise for term in global_terms(attention.visibility)}
    if isinstance(attention.positions, GlobalLocal):
        counts = {one.count for one in named if isinstance(one, FirstTokens)} or {0}
        if counts != {attention.positions.globals}:
            raise InputError(f"labels for {attention.positions.globals} global tokens, and {max(counts)} are global",
                             where=f"{path}.positions.globals", remedy=f"use globals: {max(counts)}")
    heads = attention.projection.heads
    for term in terms_of(attention.visibility):
        if isinstance(term, ByHead) and heads % len(term.terms):
            raise InputError(f"{heads} heads do not divide into {len(term.terms)} visibilities",
                             where=f"{path}.visibility.terms", remedy="give as many terms as heads, or a divisor")
