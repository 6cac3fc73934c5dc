"""GPT-NeoX: a share of each head is rotated, attention and feed-forward stand side by side."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import decoder_classes
from saucier.checkpoints.keys import Layout
from saucier.checkpoints.names import NameTable
from saucier.checkpoints.places import fields, kind_at
from saucier.checkpoints.rules import Rule
from saucier.families.rope import OLDER, one_spelling, rotary_key


def gpt_neox(dim: int = 6144, layers: int = 44, *, heads: int = 64, vocab: int = 50432, hidden: int | None = None,
             rotated: float = 0.25, parallel: bool = True, dropout: float = 0.0) -> c.Transformer:
    """GPT-NeoX, 20 B by default: a share of each head is rotated, attention and feed-forward have a norm each.

    `parallel` sublayers both read the block's input; otherwise one follows the other, as in some Pythias' siblings.
    Source: Black et al. 2022, §2.1, arXiv:2204.06745.
    """
    attention = c.SelfAttention(projection=c.Projection(heads=heads), positions=c.Rotary(share=rotated),
                                visibility=c.Causal(), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu")
    place = c.Parallel if parallel else c.PreNorm
    block = c.Block(sublayers=(c.PreNorm(inner=attention, dropout=dropout),
                               place(inner=feed_forward, norm=c.LayerNorm(), dropout=dropout)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(tied=False),
    )


KEYS = (
    kind_at("use_parallel_residual", "decoder.layers.block.sublayers.1", c.Parallel, argument="parallel", default=True),
    *fields("decoder", {
        "hidden_size": ("dim", 6144), "num_attention_heads": ("heads", 64), "num_hidden_layers": ("layers", 44),
        "intermediate_size": ("hidden", 24576), "vocab_size": ("vocab", 50432), "hidden_act": ("activation", "gelu"),
        "layer_norm_eps": ("eps", 1e-5), "attention_bias": ("attention_bias", True),
        "hidden_dropout": ("dropout embed_dropout", 0.0), "attention_dropout": ("attention_dropout", 0.0),
        "tie_word_embeddings": ("tied", False)}),
    *rotary_key("decoder.layers.block.sublayers.0.inner.positions", share=0.25, length=2048),
)
NAMES = NameTable(
    {"embed.tokens.weight": "@embed_in.weight", "decoder.final_norm.{p}": "@final_layer_norm.{p}"},
    "@layers.{i}.",
    {"attention.norm": "input_layernorm", "attention.inner.out": "attention.dense",
     "feed_forward.norm": "post_attention_layernorm", "feed_forward.inner.up": "mlp.dense_h_to_4h",
     "feed_forward.inner.down": "mlp.dense_4h_to_h"},
    {"attention.inner.qkv": ("attention.query_key_value",)},
    ignored=("@layers.{i}.attention.bias", "@layers.{i}.attention.masked_bias", "@rotary_emb.inv_freq",
             "@layers.{i}.attention.rotary_emb.inv_freq", "embed_out.weight", "lm_head.weight"),
)
GPT_NEOX_LAYOUT = Layout(
    "gpt_neox", gpt_neox, KEYS, NAMES,
    decoder_classes("GPTNeoX", output=(Rule("head.weight", "embed_out.weight", instead="lm_head.weight"),)),
    "gpt_neox.", free=frozenset({"max_position_embeddings", "is_decoder"}), normalize=one_spelling, older=OLDER,
)
