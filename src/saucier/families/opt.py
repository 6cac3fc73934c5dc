"""OPT: decoders of many sizes with learned positions that padding does not count in."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import LABELS, LAST_TOKEN, PADDING, decoder_classes, drop_classes, repeat_block
from saucier.checkpoints.fields import Key, kind_key, look_up, make_keys, put
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import NameTable


def opt(dim: int = 768, layers: int = 12, *, heads: int = 12, vocab: int = 50272, length: int = 2048,
        narrow: int | None = None, pre_norm: bool = True, dropout: float = 0.1) -> c.Transformer:
    """OPT, 125 M by default. Source: Zhang et al. 2022, §2.1 and table 1, arXiv:2205.01068; code release.

    `narrow` is the width of the token table where it is narrower than the model; with norms after the residuals
    (`pre_norm` false), it is the second smallest size.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal())
    positions = c.Learned(length=length + 2, places=c.CountedPlaces(kind="real_tokens", offset=2))
    projection = c.ProjectNarrow(kind="tokens", width=narrow, bias=False) if narrow else None
    feed_forward = c.FeedForward(hidden=4 * dim, activation="relu")
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, projection=projection, positions=positions),
        decoder=repeat_block(layers, attention, feed_forward, place=c.PreNorm if pre_norm else c.PostNorm,
                             dropout=dropout, final_norm=c.LayerNorm() if pre_norm else None, narrow=narrow),
        head=c.LanguageHead(),
    )


def by_fields(dim: int, table: int, *, pre_norm: bool, unnormed: bool, affine: bool) -> c.Transformer:
    """OPT by the published fields that shape it: width of the `table`, place and kind of norms."""
    tree = opt(dim, 1, narrow=None if table == dim else table, pre_norm=pre_norm)
    norm = c.LayerNorm() if affine else c.PlainLayerNorm()
    return put(tree, {f"{FIRST}.norm": norm, f"{FEED_FORWARD}.norm": norm,
                      "decoder.final_norm": norm if pre_norm and not unnormed else None})


def unnormed_end(tree: c.Transformer) -> bool:
    """Say whether a stack with norms inside the residuals has none at its end."""
    return isinstance(look_up(tree, FIRST), c.PreNorm) and look_up(tree, "decoder.final_norm") is None


FIRST, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
OPT_LAYOUT = Layout(
    "opt", by_fields,
    keys=(
        *make_keys("decoder", {
            "hidden_size": ("dim", 768), "num_hidden_layers": ("layers", 12), "num_attention_heads": ("heads", 12),
            "ffn_dim": ("hidden", 3072), "vocab_size": ("vocab", 50272), "activation_function": ("activation", "relu"),
            "dropout": ("dropout", 0.1), "attention_dropout": ("attention_dropout", 0.0),
            "tie_word_embeddings": ("tied", True)}, arguments=("dim",)),
        Key("layerdrop", ("decoder.layer_drop",), default=0.0, absent=0.0, ours=lambda rate: rate or None),
        Key("word_embed_proj_dim", (), argument="table", default=lambda document: document.get("hidden_size", 768),
            found=lambda tree: tree.embed.widths(tree.dim)[0]),
        kind_key("do_layer_norm_before", FIRST, "pre", argument="pre_norm", default=True),
        Key("_remove_final_layer_norm", (), argument="unnormed", default=False, found=unnormed_end),
        kind_key("layer_norm_elementwise_affine", f"{FIRST}.norm", "layer_norm", argument="affine", default=True),
        Key("max_position_embeddings", ("embed.positions.length",), default=2048, ours=lambda rows: rows + 2,
            theirs=lambda rows: rows - 2),
        Key("enable_bias", (f"{FIRST}.inner.projection.bias", f"{FIRST}.inner.projection.output_bias",
                            f"{FEED_FORWARD}.inner.bias"), default=True),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@decoder.embed_tokens.weight",
         "embed.positions.weight": "@decoder.embed_positions.weight",
         "embed.project.weight": "@decoder.project_in.weight", "decoder.narrow.weight": "@decoder.project_out.weight",
         "decoder.final_norm.{p}": "@decoder.final_layer_norm.{p}"},
        "@decoder.layers.{i}.",
        {"attention.norm": "self_attn_layer_norm", "attention.inner.out": "self_attn.out_proj",
         "feed_forward.norm": "final_layer_norm", "feed_forward.inner.up": "fc1", "feed_forward.inner.down": "fc2"},
        {"attention.inner.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
        ignored=("lm_head.weight", "@decoder.version"),
    ),
    classes={**drop_classes(decoder_classes("OPT"), "ForTokenClassification"),
             "OPTForSequenceClassification": replace(LAST_TOKEN, keys=(LABELS, replace(PADDING, default=1)))},
    base="model.", free=frozenset({"init_std", "activation_dropout"}),
)
