"""DeBERTa: a BERT whose attention scores content and distance apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import without
from saucier.checkpoints.keys import Layout
from saucier.checkpoints.orders import HeadByHead
from saucier.checkpoints.places import first_attention
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families.deberta_lineage import (
    FREE,
    KEYS,
    NAMES,
    OURS,
    THEIRS,
    TOLD,
    attention,
    body,
    classes,
    encoder,
    normalized,
    spelled,
)


def deberta(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 50265,
    length: int = 512,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DeBERTa with its language head. Source: He et al. 2021, §3, arXiv:2006.03654.

    `length` is the reach of the distances; there are no absolute positions, as in the published base and large models.
    """
    positions = c.Disentangled(distances=c.ExactDistances(reach=length), maps=c.OwnMaps(key_bias=False),
                               dropout=dropout)
    projection = c.Projection(heads=heads, key_bias=False)
    return encoder(dim, layers, c.SelfAttention(projection=projection, positions=positions), vocab=vocab,
                   hidden=hidden or 4 * dim, dropout=dropout)


def from_fields(dim: int, *, heads: int, relative: bool, reach: int, terms: tuple[str, ...],
                **rest: Any) -> c.Transformer:
    """DeBERTa's first version by the published fields."""
    length = rest["length"]
    distances = c.Disentangled(
        distances=c.ExactDistances(reach=reach if reach > 0 else length), maps=c.OwnMaps(key_bias=False),
        content_to_position="c2p" in terms, position_to_content="p2c" in terms) if relative else None
    return body(attention(dim, heads, terms, distances, key_bias=False), dim, **rest)


def weights(tree: c.Transformer) -> Rules:
    """The names of the first version's body."""
    heads = first_attention(tree).projection.heads
    return replace(NAMES, more=(
        Rule(OURS + "qkv.weight", THEIRS + "in_proj.weight", HeadByHead(heads)),
        Rule(OURS + "qkv.bias", (THEIRS + "q_bias", THEIRS + "v_bias"), Concat((tree.dim,) * 2)),
        Rule(OURS + "positions.key.weight", THEIRS + "pos_proj.weight"),
        Rule(OURS + "positions.query.{p}", THEIRS + "pos_q_proj.{p}")))(tree)


DEBERTA_LAYOUT = Layout(
    "deberta", from_fields, KEYS, weights, without(classes("Deberta"), "ForMultipleChoice"), "deberta.",
    fixed={"talking_head": False}, free=FREE, told=TOLD, normalize=normalized, spelled=spelled)
