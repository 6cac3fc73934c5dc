"""What a head reads, and what it needs of the model before it."""

from __future__ import annotations

from saucier.config.asked import reads_pooled
from saucier.config.heads import (
    BidirectionalHead,
)
from saucier.config.model import (
    Transformer,
)
from saucier.errors import InputError


def check_head(config: Transformer) -> None:
    """A head that reads the pooled vector needs a pooler, and a tied output matrix the width of the token table."""
    if reads_pooled(config) and config.pooler is None:
        raise InputError(
            "the head reads the pooled first token, and the model has no pooler",
            where="head",
            remedy="add `pooler: {}`, or take the vector elsewhere (pick: {kind: first})",
        )
    language = config.output_layer
    if language is None or not language.tied:
        return
    table, given = config.output_embed.widths(config.dim)[0], config.width
    if isinstance(config.head, BidirectionalHead):
        given //= 2
    if language.transform is not None and language.transform.width is not None:
        given = language.transform.width
    if table + language.columns != given:
        raise InputError(
            f"the output layer reads vectors of {given}, and the token table that it is tied to has {table}",
            where="head",
            remedy=f"use tied: false, or a transform of width {table}, or {max(given - table, 0)} columns more",
        )
