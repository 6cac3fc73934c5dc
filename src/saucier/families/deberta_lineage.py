"""What DeBERTa's versions share: the tree around their attention, fields, names and classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.classes import LABELS, TIED, encoder_classes, head_class, keep_all, language_rules
from saucier.checkpoints.fields import ACTIVATIONS, Document, Key, first_attention, kind_key, look_up, put
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Rule
from saucier.errors import InputError
from saucier.families import bert_lineage

TERMS = ("c2p", "p2c")
POSITIONS, HEAD = f"{bert_lineage.ATTENTION}.inner.positions", "head.transform"


def encoder(dim: int, layers: int, attention: c.SelfAttention, *, vocab: int, hidden: int,
            dropout: float) -> c.Transformer:
    """The tree that all versions share, around their attention."""
    norm = c.LayerNorm(eps=1e-7)
    return bert_lineage.encoder(dim, layers, c.Embedding(vocab=vocab, norm=norm, dropout=dropout),
                                heads=attention.projection.heads, hidden=hidden, attention=attention,
                                head=c.LanguageHead(bias=True, transform=c.Transform(norm=norm)))


def from_fields(dim: int, *, heads: int, key_bias: bool = True, **given: Any) -> c.Transformer:
    """The family by its published fields; those that only later versions have may be missing.

    The scale of the scores counts the terms, with or without positions.
    """
    terms, width, length = given["terms"], given["width"], given["length"]
    reach = given["reach"] if given["reach"] > 0 else length
    buckets, convolution = given.get("buckets", 0), given.get("convolution", 0)
    positions = c.Disentangled(
        distances=c.LogDistances(buckets=buckets, reach=reach) if buckets > 0 else c.ExactDistances(reach=reach),
        maps=c.SharedMaps() if given.get("shared") else c.OwnMaps(key_bias=key_bias),
        norm=c.LayerNorm() if given.get("normed") else None, content_to_position="c2p" in terms,
        position_to_content="p2c" in terms) if given["relative"] else c.NoPositions()
    scale = ((1 + len(terms)) * (dim // heads)) ** -0.5 if terms and not given["relative"] else None
    attention = c.SelfAttention(projection=c.Projection(heads=heads, key_bias=key_bias, scale=scale),
                                positions=positions)
    transform = c.Transform(width=width if width != dim else None, norm=c.LayerNorm())
    return put(encoder(dim, 1, attention, vocab=1, hidden=1, dropout=0.0), {
        "embed.positions": c.Learned(length=length) if given["biased"] else c.NoPositions(),
        "embed.segments": c.SegmentTable(count=given["segments"]) if given["segments"] else None,
        "embed.projection": c.ProjectNarrow(kind="sum", width=width, bias=False) if width != dim else None,
        "encoder.convolution": c.Convolution(size=convolution) if convolution > 0 else None,
        "head": c.LanguageHead(bias=True, transform=transform)})


def terms_of(tree: c.Transformer) -> tuple[str, ...]:
    """The published names of the terms; without positions they still count in the scale."""
    attention = first_attention(tree)
    projection, found = attention.projection, attention.positions
    if isinstance(found, c.Disentangled):
        return tuple(name for name, has in zip(TERMS, (found.content_to_position, found.position_to_content),
                                               strict=True) if has)
    scale, head = projection.scale, projection.widths(tree.dim)[2]
    return () if scale is None else TERMS[:round(1 / (scale**2 * head)) - 1]


def read_terms(value: str | list[str]) -> tuple[str, ...]:
    """Return the terms of a list or of a string with bars. Raises `ValueError` for unknown or repeated ones."""
    names = [name.strip() for name in value.lower().split("|")] if isinstance(value, str) else list(value)
    if sorted(names) != sorted(set(names) & set(TERMS)):
        raise ValueError(value)
    return tuple(name for name in TERMS if name in names)


KEYS = bert_lineage.keys(
    kind_key("position_biased_input", "embed.positions", "learned", argument="biased", default=True),
    Key("max_position_embeddings", ("embed.positions.length",), argument="length", default=512),
    Key("type_vocab_size", ("embed.segments.count",), argument="segments", default=0, absent=0),
    Key("embedding_size", (), argument="width", default=lambda document: document["hidden_size"],
        found=lambda tree: tree.embed.widths(tree.dim)[0]),
    kind_key("relative_attention", POSITIONS, "disentangled", argument="relative", default=False),
    Key("max_relative_positions", (f"{POSITIONS}.distances.reach",), argument="reach", default=-1),
    Key("pos_att_type", (POSITIONS,), argument="terms", default=(), ours=read_terms, theirs=list, found=terms_of),
    arguments=("dim", "heads"), transform=HEAD, layer_norm_eps=("eps", 1e-7),
    also={"eps": (f"{POSITIONS}.norm.eps", "encoder.convolution.norm.eps"),
          "dropout": (f"{POSITIONS}.dropout", "encoder.convolution.dropout")})


def normalize_fields(document: Document) -> Document:
    """Refuse the two fields that no class of the reference can run with, by name."""
    dim = document.get("hidden_size")
    if document.get("pooler_hidden_size", dim) != dim:
        raise InputError(f"pooler_hidden_size {document['pooler_hidden_size']} is not hidden_size {dim}",
                         where="config.json", remedy="the pooler reads hidden vectors: give it their width")
    if document.get("legacy") is False and document.get("embedding_size", dim) != dim:
        raise InputError("legacy false with a narrow embedding_size", where="config.json",
                         remedy="the newer head reads the token table with vectors of hidden_size: use legacy true")
    return document


HEAD_NAMES = {True: "cls.predictions.transform", False: "lm_predictions.lm_head"}
"""Where the language head's maps are, by `legacy`: the numbers are the same."""
BIASES = {True: "cls.predictions.bias", False: "lm_predictions.lm_head.bias"}
NAMES = replace(
    bert_lineage.BODY, outside={**bert_lineage.EMBEDDINGS, "embed.project.weight": "@embeddings.embed_proj.weight",
                                "encoder.shared.weight": "@encoder.rel_embeddings.weight"},
    inside={**bert_lineage.FEED_FORWARD, "attention.inner.out": "attention.output.dense",
            "attention.norm": "attention.output.LayerNorm"}, maps={},
    ignored=("@embeddings.position_ids", "cls.predictions.decoder.{p}", *BIASES.values(),
             *(f"{root}.{name}.{{p}}" for root in HEAD_NAMES.values() for name in ("dense", "LayerNorm")),
             *(f"mask_predictions.{name}.{{p}}" for name in ("dense", "LayerNorm", "classifier"))))
OURS, THEIRS = "encoder.blocks.{i}.attention.inner.", "@encoder.layer.{i}.attention.self."


def word_rules(legacy: bool) -> Callable[[c.Transformer], tuple[Rule, ...]]:
    """The names of the language head, older or newer."""
    root = HEAD_NAMES[legacy]
    return language_rules(f"{root}.dense", f"{root}.LayerNorm", "cls.predictions.decoder", bias=BIASES[legacy])


def choose_spelling(layout: Layout, document: Document) -> Layout:
    """Return the layout with the newer language head where `legacy` is false: its output is always the token table."""
    if document.get("legacy", True) is not False:
        return layout
    first = next(iter(layout.classes))
    return replace(layout, classes={**layout.classes, first: Published(keep_all, word_rules(legacy=False))})


DROPOUT = Key("cls_dropout", ("head.dropout",), default=lambda document: document.get("hidden_dropout_prob", 0.1))
POOLED = (DROPOUT, Key("pooler_dropout", ("head.transform.dropout",), default=0.0),
          Key("pooler_hidden_act", ("head.transform.activation",), names=ACTIVATIONS, default="gelu"))


def classes(name: str) -> dict[str, Published]:
    """The published classes of both layouts; only the later versions have one for choices."""
    text = head_class(c.ClassificationHead(pick=c.PickVector(kind="first"), transform=c.Transform()),
                      dense="pooler.dense",
                      keys=(LABELS, *POOLED))
    return {**encoder_classes(name, word_rules(legacy=True), text,
                              dropout=replace(bert_lineage.HEAD_DROPOUT, paths=("head.dropout",))),
            f"{name}ForMaskedLM": Published(keep_all, word_rules(legacy=True), (TIED,)),
            f"{name}ForMultipleChoice": head_class(
                c.ChoiceHead(pick=c.PickVector(kind="first"), transform=c.Transform()), dense="pooler.dense",
                keys=POOLED)}


OBEYED = {"legacy": "any value that makes a model", "pooler_hidden_size": "the value of hidden_size"}
FREE = frozenset({"max_position_embeddings", "cls_dropout", "pooler_dropout",
                  "pooler_hidden_act", "conv_act", "conv_groups", "tie_word_embeddings"})

V2_KEYS = (
    *KEYS,
    Key("position_buckets", (f"{POSITIONS}.distances.buckets",), argument="buckets", default=-1, absent=-1),
    kind_key("share_att_key", f"{POSITIONS}.maps", "shared", argument="shared", default=False),
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
