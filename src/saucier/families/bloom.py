"""BLOOM: a decoder that knows distances by a penalty on its scores, with a norm after the embedding."""

from __future__ import annotations

from functools import partial

from saucier import config as c
from saucier.checkpoints.classes import decoder_classes, repeat_block
from saucier.checkpoints.fields import kind_key, make_keys, rename_fields
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import NameTable


def bloom(dim: int = 14336, layers: int = 70, *, heads: int = 112, vocab: int = 250880, behind_norm: bool = False,
          dropout: float = 0.0) -> c.Transformer:
    """BLOOM, 176 B by default. Source: BigScience 2022, §3.2, arXiv:2211.05100.

    `behind_norm` lets every residual begin after its norm, which no published size does.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=c.Alibi(), visibility=c.Causal(),
                                kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=4 * dim, activation="gelu_tanh")
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, norm=c.LayerNorm()),
        decoder=repeat_block(layers, attention, feed_forward, place=c.FromNorm if behind_norm else c.PreNorm,
                             dropout=dropout, final_norm=c.LayerNorm()),
        head=c.LanguageHead(),
    )


OLDER = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}

BLOOM_LAYOUT = Layout(
    "bloom", bloom,
    keys=(
        *make_keys("decoder", {
            "hidden_size": ("dim", 64), "n_head": ("heads", 8), "n_layer": ("layers", 2),
            "vocab_size": ("vocab", 250880),
            "layer_norm_epsilon": ("eps", 1e-5), "hidden_dropout": ("dropout", 0.0),
            "attention_dropout": ("attention_dropout", 0.0), "tie_word_embeddings": ("tied", True),
        }, arguments=("dim", "heads")),
        kind_key("apply_residual_connection_post_layernorm", "decoder.layers.block.sublayers.0", "from_norm",
                 argument="behind_norm", default=False),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@word_embeddings.weight", "embed.norm.{p}": "@word_embeddings_layernorm.{p}",
         "decoder.final_norm.{p}": "@ln_f.{p}"},
        "@h.{i}.",
        {"attention.norm": "input_layernorm", "attention.inner.out": "self_attention.dense",
         "feed_forward.norm": "post_attention_layernorm", "feed_forward.inner.up": "mlp.dense_h_to_4h",
         "feed_forward.inner.down": "mlp.dense_4h_to_h"},
        {"attention.inner.qkv": ("self_attention.query_key_value",)},
        ignored=("lm_head.weight",),
    ),
    classes=decoder_classes("Bloom", dropout=lambda document: document.get("hidden_dropout", 0.0)),
    base="transformer.", free=frozenset({
        "pretraining_tp", "slow_but_exact", "attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion",
        "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id",
    }), fixed={"n_inner": None}, normalize=partial(rename_fields, older=OLDER),
    older=OLDER,
)
