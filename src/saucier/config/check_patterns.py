"""Illegal combinations around visibilities that differ by head."""

from __future__ import annotations

from saucier.config.layers import SelfAttention
from saucier.config.visibility import ByHead, terms_of
from saucier.errors import InputError


def check_by_head(path: str, attention: SelfAttention) -> None:
    """Terms by head are shared out evenly among the heads."""
    heads = attention.projection.heads
    for term in terms_of(attention.visibility):
        if isinstance(term, ByHead) and heads % len(term.terms):
            raise InputError(f"{heads} heads do not divide into {len(term.terms)} visibilities",
                             where=f"{path}.visibility.terms", remedy="give as many terms as heads, or a divisor")
