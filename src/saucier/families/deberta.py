"""DeBERTa: a BERT whose attention scores content and distance separately; later versions with distances in buckets and
maps shared with the content's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import drop_classes
from saucier.checkpoints.fields import first_attention
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Concat, HeadByHead, Rule, Rules
from saucier.families.deberta_lineage import (
    FREE,
    KEYS,
    NAMES,
    OBEYED,
    OURS,
    THEIRS,
    V2_KEYS,
    V2_NAMES,
    choose_spelling,
    classes,
    encoder,
    from_fields,
    normalize_fields,
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


def v1_weights(tree: c.Transformer) -> Rules:
    """The names of the first version's body."""
    return replace(NAMES, more=(
        Rule(OURS + "qkv.weight", THEIRS + "in_proj.weight", HeadByHead(first_attention(tree).projection.heads)),
        Rule(OURS + "qkv.bias", (THEIRS + "q_bias", THEIRS + "v_bias"), Concat((tree.dim,) * 2)),
        Rule(OURS + "positions.key.weight", THEIRS + "pos_proj.weight"),
        Rule(OURS + "positions.query.{p}", THEIRS + "pos_q_proj.{p}")))(tree)


DEBERTA_LAYOUT = Layout(
    "deberta", partial(from_fields, key_bias=False), KEYS, v1_weights,
    drop_classes(classes("Deberta"), "ForMultipleChoice"), "deberta.",
    fixed={"talking_head": False}, free=FREE, obeyed=OBEYED, normalize=normalize_fields, choose_layout=choose_spelling)


def deberta_v2(
    dim: int = 768,
    layers: int = 12,
    *,
    heads: int = 12,
    vocab: int = 128100,
    length: int = 512,
    buckets: int = 256,
    hidden: int | None = None,
    dropout: float = 0.1,
) -> c.Transformer:
    """DeBERTa-v3, base size by default, with a language head. Source: He et al. 2023, §5.1, arXiv:2111.09543.

    The second version has the same parts (He et al. 2021, code release), and a convolution next to its first block.
    """
    positions = c.Disentangled(distances=c.LogDistances(buckets=buckets, reach=length), maps=c.SharedMaps(),
                               norm=c.LayerNorm(eps=1e-7), dropout=dropout)
    return encoder(dim, layers, c.SelfAttention(projection=c.Projection(heads=heads), positions=positions),
                   vocab=vocab, hidden=hidden or 4 * dim, dropout=dropout)


DEBERTA_V2_LAYOUT = Layout("deberta-v2", from_fields, V2_KEYS, V2_NAMES, classes("DebertaV2"), "deberta.",
                           free=FREE, obeyed=OBEYED, normalize=normalize_fields, choose_layout=choose_spelling)
