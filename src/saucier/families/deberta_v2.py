"""DeBERTa's second and third version: distances in buckets, maps shared with the content's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, look_up, put
from saucier.checkpoints.places import kind_at
from saucier.families.deberta_lineage import (
    FREE,
    KEYS,
    NAMES,
    POSITIONS,
    TOLD,
    attention,
    body,
    classes,
    encoder,
    normalized,
    spelled,
)


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

    The second version has the same parts (He et al. 2021, code release), and a convolution beside its first block.
    """
    positions = c.Disentangled(distances=c.LogDistances(buckets=buckets, reach=length), maps=c.SharedMaps(),
                               norm=c.LayerNorm(eps=1e-7), dropout=dropout)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=positions)
    return encoder(dim, layers, attention, vocab=vocab, hidden=hidden or 4 * dim, dropout=dropout)


def from_fields(dim: int, *, heads: int, relative: bool, reach: int, terms: tuple[str, ...], convolution: int,
                   **rest: Any) -> c.Transformer:
    """The later versions by the published fields."""
    buckets, shared, normed = (rest.pop(name) for name in ("buckets", "shared", "normed"))
    reach = reach if reach > 0 else rest["length"]
    distances = c.Disentangled(
        distances=c.LogDistances(buckets=buckets, reach=reach) if buckets > 0 else c.ExactDistances(reach=reach),
        maps=c.SharedMaps() if shared else c.OwnMaps(), norm=c.LayerNorm() if normed else None,
        content_to_position="c2p" in terms, position_to_content="p2c" in terms) if relative else None
    tree = body(attention(dim, heads, terms, distances, key_bias=True), dim, **rest)
    made: c.Transformer = put(tree, "encoder.convolution", c.Convolution(size=convolution) if convolution > 0 else None)
    return made


V2_KEYS = (
    *KEYS,
    Key("position_buckets", (f"{POSITIONS}.distances.buckets",), argument="buckets", default=-1, absent=-1),
    kind_at("share_att_key", f"{POSITIONS}.maps", c.SharedMaps, argument="shared", default=False),
    Key("norm_rel_ebd", (), argument="normed", default="none", names={"none": False, "layer_norm": True},
        found=lambda tree: look_up(tree, f"{POSITIONS}.norm") is not None),
    Key("conv_kernel_size", ("encoder.convolution.size",), argument="convolution", default=0, absent=0),
    Key("conv_act", ("encoder.convolution.activation",), names=ACTIVATIONS, default="tanh"),
    Key("conv_groups", ("encoder.convolution.groups",), default=1),
)
V2_NAMES = replace(
    NAMES, outside={**NAMES.outside, "encoder.shared.norm.{p}": "@encoder.LayerNorm.{p}",
                    "encoder.convolution.{p}": "@encoder.conv.conv.{p}",
                    "encoder.convolution.norm.{p}": "@encoder.conv.LayerNorm.{p}"},
    inside={**NAMES.inside, "attention.inner.positions.key": "attention.self.pos_key_proj",
            "attention.inner.positions.query": "attention.self.pos_query_proj"},
    maps={"attention.inner.qkv": tuple(f"attention.self.{name}_proj" for name in ("query", "key", "value"))})
DEBERTA_V2_LAYOUT = Layout("deberta-v2", from_fields, V2_KEYS, V2_NAMES, classes("DebertaV2"), "deberta.",
                           free=FREE, told=TOLD, normalize=normalized, spelled=spelled)
