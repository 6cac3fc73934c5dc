"""How DeBERTa's versions are published: config fields, weight names and classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, whole
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Layout, Published
from saucier.checkpoints.orders import HeadByHead
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.errors import InputError
from saucier.families.deberta import encoder

TERMS = ("c2p", "p2c")
ATTENTION, FEED_FORWARD = "encoder.layers.block.sublayers.0", "encoder.layers.block.sublayers.1"
POSITIONS, HEAD = f"{ATTENTION}.inner.positions", "head.transform"


def body(attention: c.SelfAttention, dim: int, *, biased: bool, length: int, segments: int,
         width: int) -> c.Transformer:
    """The encoder around this attention, by the published fields of its embedding."""
    tree = encoder(dim, 1, attention, vocab=1, hidden=1, dropout=0.0)
    narrow = width != dim
    embed = tree.embed.model_copy(update={
        "positions": c.Learned(length=length) if biased else c.NoPositions(),
        "segments": c.SegmentTable(count=segments) if segments else None,
        "projection": c.ProjectSum(width=width, bias=False) if narrow else None})
    transform = c.Transform(width=width if narrow else None, norm=c.LayerNorm())
    head = c.LanguageHead(bias=True, transform=transform)
    return tree.model_copy(update={"embed": embed, "head": head})


def attention(width: int, heads: int, terms: tuple[str, ...], positions: c.Disentangled | None, *,
              key_bias: bool) -> c.SelfAttention:
    """The attention by the published fields; their scale counts the terms, with or without positions."""
    scale = ((1 + len(terms)) * (width // heads)) ** -0.5 if positions is None and terms else None
    projection = c.Projection(heads=heads, key_bias=key_bias, scale=scale)
    return c.SelfAttention(projection=projection, positions=positions or c.NoPositions())


def from_fields(dim: int, *, heads: int, relative: bool, reach: int, terms: tuple[str, ...],
                **rest: Any) -> c.Transformer:
    """DeBERTa's first version by the published fields."""
    length = rest["length"]
    distances = c.Disentangled(
        distances=c.ExactDistances(reach=reach if reach > 0 else length), maps=c.OwnMaps(key_bias=False),
        content_to_position="c2p" in terms, position_to_content="p2c" in terms) if relative else None
    return body(attention(dim, heads, terms, distances, key_bias=False), dim, **rest)


def from_v2_fields(dim: int, *, heads: int, relative: bool, reach: int, terms: tuple[str, ...], convolution: int,
                   **rest: Any) -> c.Transformer:
    """The later versions by the published fields."""
    buckets, shared, normed = (rest.pop(name) for name in ("buckets", "shared", "normed"))
    reach = reach if reach > 0 else rest["length"]
    distances = c.Disentangled(
        distances=c.LogDistances(buckets=buckets, reach=reach) if buckets > 0 else c.ExactDistances(reach=reach),
        maps=c.SharedMaps() if shared else c.OwnMaps(), norm=c.LayerNorm() if normed else None,
        content_to_position="c2p" in terms, position_to_content="p2c" in terms) if relative else None
    tree = body(attention(dim, heads, terms, distances, key_bias=True), dim, **rest)
    assert tree.encoder is not None, "a DeBERTa is an encoder"
    beside = c.Convolution(size=convolution) if convolution > 0 else None
    return tree.model_copy(update={"encoder": tree.encoder.model_copy(update={"convolution": beside})})


def attention_of(tree: c.Transformer) -> c.SelfAttention:
    """The self-attention of every block."""
    assert tree.encoder is not None, "a DeBERTa is an encoder"
    inner = tree.encoder.blocks()[0].sublayers[0].inner
    assert isinstance(inner, c.SelfAttention), "as the family's function says"
    return inner


def disentangled(tree: c.Transformer) -> c.Disentangled | None:
    """The positions of the attention, where it has any."""
    positions = attention_of(tree).positions
    return positions if isinstance(positions, c.Disentangled) else None


def terms_of(tree: c.Transformer) -> tuple[str, ...]:
    """The published names of the terms; without positions they still stand in the scale."""
    projection, found = attention_of(tree).projection, disentangled(tree)
    if found is not None:
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


def places_of(tree: c.Transformer) -> int | None:
    """Rows of the table of absolute positions, where there is one."""
    return tree.embed.positions.length if isinstance(tree.embed.positions, c.Learned) else None


def reach_of(tree: c.Transformer) -> int | None:
    """The reach of the distances."""
    found = disentangled(tree)
    return None if found is None else found.distances.reach


KEYS = (
    Key("hidden_size", ("dim",), argument="dim"),
    Key("num_attention_heads", (f"{ATTENTION}.inner.projection.heads",), argument="heads"),
    Key("position_biased_input", (), argument="biased", default=True, found=lambda tree: places_of(tree) is not None),
    Key("max_position_embeddings", (), argument="length", default=512, found=places_of),
    Key("type_vocab_size", (), argument="segments", default=0,
        found=lambda tree: tree.embed.segments.count if isinstance(tree.embed.segments, c.SegmentTable) else 0),
    Key("embedding_size", (), argument="width", default=lambda document: document["hidden_size"],
        found=lambda tree: tree.embed.widths(tree.dim)[0]),
    Key("relative_attention", (), argument="relative", default=False,
        found=lambda tree: disentangled(tree) is not None),
    Key("max_relative_positions", (), argument="reach", default=-1, found=reach_of),
    Key("pos_att_type", (), argument="terms", default=(), ours=read_terms, theirs=list, found=terms_of),
    Key("num_hidden_layers", ("encoder.layers.times",)),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("vocab_size", ("embed.vocab",)),
    Key("hidden_act", (f"{FEED_FORWARD}.inner.activation", f"{HEAD}.activation"), names=ACTIVATIONS, default="gelu"),
    Key("layer_norm_eps", (f"{ATTENTION}.norm.eps", "embed.norm.eps", f"{FEED_FORWARD}.norm.eps", f"{HEAD}.norm.eps",
                           f"{POSITIONS}.norm.eps", "encoder.convolution.norm.eps"), default=1e-7),
    Key("hidden_dropout_prob", (f"{ATTENTION}.dropout", "embed.dropout", f"{FEED_FORWARD}.dropout",
                                f"{POSITIONS}.dropout", "encoder.convolution.dropout"), default=0.1),
    Key("attention_probs_dropout_prob", (f"{ATTENTION}.inner.kernel.dropout",), default=0.1),
)
V2_KEYS = (
    *KEYS,
    Key("position_buckets", (), argument="buckets", default=-1,
        found=lambda tree: getattr(getattr(disentangled(tree), "distances", None), "buckets", -1)),
    Key("share_att_key", (), argument="shared", default=False,
        found=lambda tree: isinstance(getattr(disentangled(tree), "maps", None), c.SharedMaps)),
    Key("norm_rel_ebd", (), argument="normed", default="none", names={"none": False, "layer_norm": True},
        found=lambda tree: getattr(disentangled(tree), "norm", None) is not None),
    Key("conv_kernel_size", (), argument="convolution", default=0,
        found=lambda tree: tree.encoder.convolution.size if tree.encoder and tree.encoder.convolution else 0),
    Key("conv_act", ("encoder.convolution.activation",), names={**ACTIVATIONS, "tanh": "tanh"}, default="tanh"),
    Key("conv_groups", ("encoder.convolution.groups",), default=1),
)


def normalized(document: Document) -> Document:
    """Refuse the two fields that no class of the reference can run with, by name."""
    dim = document.get("hidden_size")
    if document.get("pooler_hidden_size", dim) != dim:
        raise InputError(f"pooler_hidden_size {document['pooler_hidden_size']} is not hidden_size {dim}",
                         where="config.json", remedy="the pooler reads hidden vectors: give it their width")
    if document.get("legacy") is False and document.get("embedding_size", dim) != dim:
        raise InputError("legacy false with a narrow embedding_size", where="config.json",
                         remedy="the newer head reads the token table with vectors of hidden_size: use legacy true")
    return document


def weights(tree: c.Transformer) -> Rules:
    """The names of the first version's body."""
    own = f"{THEIRS}attention.self."
    return common(tree, [
        Rule(f"{OURS}attention.inner.qkv.weight", f"{own}in_proj.weight", HeadByHead(heads_of(tree))),
        Rule(f"{OURS}attention.inner.qkv.bias", (f"{own}q_bias", f"{own}v_bias"), Concat((tree.dim,) * 2)),
        Rule(f"{OURS}attention.inner.positions.key.weight", f"{own}pos_proj.weight"),
        Rule(f"{OURS}attention.inner.positions.query.{{p}}", f"{own}pos_q_proj.{{p}}"),
    ])


def v2_weights(tree: c.Transformer) -> Rules:
    """The names of the later versions' body."""
    own = f"{THEIRS}attention.self."
    maps = tuple(f"{own}{name}_proj.{{p}}" for name in ("query", "key", "value"))
    return common(tree, [
        Rule(f"{OURS}attention.inner.qkv.{{p}}", maps, Concat((tree.dim,) * 3)),
        Rule(f"{OURS}attention.inner.positions.key.{{p}}", f"{own}pos_key_proj.{{p}}"),
        Rule(f"{OURS}attention.inner.positions.query.{{p}}", f"{own}pos_query_proj.{{p}}"),
        Rule("encoder.shared.norm.{p}", "@encoder.LayerNorm.{p}"),
        Rule("encoder.convolution.{p}", "@encoder.conv.conv.{p}"),
        Rule("encoder.convolution.norm.{p}", "@encoder.conv.LayerNorm.{p}"),
    ])


OURS, THEIRS = "encoder.blocks.{i}.", "@encoder.layer.{i}."
NAMES = {
    "embed.norm": "@embeddings.LayerNorm", OURS + "attention.inner.out": THEIRS + "attention.output.dense",
    OURS + "attention.norm": THEIRS + "attention.output.LayerNorm",
    OURS + "feed_forward.inner.up": THEIRS + "intermediate.dense",
    OURS + "feed_forward.inner.down": THEIRS + "output.dense", OURS + "feed_forward.norm": THEIRS + "output.LayerNorm",
}
TABLES = {"tokens": "word_embeddings", "positions": "position_embeddings", "segments": "token_type_embeddings",
          "project": "embed_proj"}


def heads_of(tree: c.Transformer) -> int:
    """Number of heads."""
    return attention_of(tree).projection.heads


def common(tree: c.Transformer, attention: list[Rule]) -> Rules:
    """The names of a body, around those of its attention's maps."""
    spare = [name.replace("@", "") for dense, norm, bias in HEAD_NAMES.values() for name in (
        f"{dense}.{{p}}", f"{norm}.{{p}}", bias)]
    mask = [f"mask_predictions.{name}.{{p}}" for name in ("dense", "LayerNorm", "classifier")]
    return Rules([
        *(Rule(f"embed.{ours}.weight", f"@embeddings.{theirs}.weight") for ours, theirs in TABLES.items()),
        *(Rule(ours + ".{p}", theirs + ".{p}") for ours, theirs in NAMES.items()), *attention,
        Rule("encoder.shared.weight", "@encoder.rel_embeddings.weight"),
    ], ignored=["@embeddings.position_ids", "cls.predictions.decoder.{p}", *spare, *mask])


HEAD_NAMES = {
    True: ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    False: ("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", "lm_predictions.lm_head.bias"),
}
"""The language head's names, by `legacy`: the numbers are the same."""


def language(legacy: bool) -> Published:
    """The class with a language head, by older or newer names."""
    dense, norm, bias = HEAD_NAMES[legacy]
    return Published(whole.keep, (Rule("head.transform.dense.{p}", dense + ".{p}"),
                                  Rule("head.transform.norm.{p}", norm + ".{p}"), Rule("head.bias", bias)))


def spelled(layout: Layout, document: Document) -> Layout:
    """Return the layout with the newer names of the language head where `legacy` is false."""
    if document.get("legacy", True) is not False:
        return layout
    first = next(iter(layout.classes))
    return replace(layout, classes={**layout.classes, first: language(legacy=False)})


DROPOUT = Key("cls_dropout", ("head.dropout",), default=lambda document: document.get("hidden_dropout_prob", 0.1))
TOKEN_DROPOUT = Key("hidden_dropout_prob", ("head.dropout",), default=0.1)
POOLED = (DROPOUT, Key("pooler_dropout", ("head.transform.dropout",), default=0.0),
          Key("pooler_hidden_act", ("head.transform.activation",), names={**ACTIVATIONS, "tanh": "tanh"},
              default="gelu"))
FIRST = c.Transform()


def classes(name: str) -> dict[str, Published]:
    """The published classes that both layouts have."""
    return {
        f"{name}ForMaskedLM": language(legacy=True),
        f"{name}ForSequenceClassification": labelling(c.ClassificationHead(pick=c.First(), transform=FIRST),
                                                      dense="pooler.dense", keys=(LABELS, *POOLED)),
        f"{name}ForTokenClassification": labelling(c.TokenHead(), keys=(LABELS, TOKEN_DROPOUT)),
        f"{name}ForQuestionAnswering": labelling(c.SpanHead(), "qa_outputs", keys=()),
        f"{name}Model": bare,
    }


CHOICE = labelling(c.ChoiceHead(pick=c.First(), transform=FIRST), dense="pooler.dense", keys=POOLED)
FREE = frozenset({"legacy", "pooler_hidden_size", "max_position_embeddings", "cls_dropout", "pooler_dropout",
                  "pooler_hidden_act", "conv_act", "conv_groups"})
FIXED = {"tie_word_embeddings": True}
DEBERTA_LAYOUT = Layout("deberta", from_fields, KEYS, weights, classes("Deberta"), "deberta.",
                        fixed={**FIXED, "talking_head": False}, free=FREE, normalize=normalized, spelled=spelled)
DEBERTA_V2_LAYOUT = Layout(
    "deberta-v2", from_v2_fields, V2_KEYS, v2_weights,
    {**classes("DebertaV2"), "DebertaV2ForMultipleChoice": CHOICE}, "deberta.",
    fixed=FIXED, free=FREE, normalize=normalized, spelled=spelled)
