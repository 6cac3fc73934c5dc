"""GPT-J and GPT-NeoX: decoders with rotary positions, attention and feed-forward next to each other in a block."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import FREE_SUMMARY_FIELDS, decoder_classes, drop_classes
from saucier.checkpoints.fields import Key, first_attention, kind_key, make_keys
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import NameTable, Rule
from saucier.families.rope import OLDER, normalize_rotary, rotary_key


def gptj(dim: int = 4096, layers: int = 28, *, heads: int = 16, vocab: int = 50400, hidden: int | None = None,
         rotated: int = 64, dropout: float = 0.0) -> c.Transformer:
    """GPT-J: attention and feed-forward read one norm; `rotated` values of each head turn in pairs of neighbours.

    Source: Wang and Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model".
    """
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, bias=False, output_bias=False), visibility=c.Causal(),
        positions=c.Rotary(share=rotated / (dim // heads), pairs=c.Pairs(kind="neighbours")),
        kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")
    block = c.Block(sublayers=(c.PreNorm(inner=attention, dropout=dropout),
                               c.Parallel(inner=feed_forward, dropout=dropout)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.TablelessSegments(kind="tokens"), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(tied=False, bias=True),
    )


def rotated_of(tree: c.Transformer) -> int | None:
    """How many values of each head are rotated."""
    first = first_attention(tree)
    rotary = first.positions
    return rotary.width(first.projection.widths(tree.dim)[2]) if isinstance(rotary, c.Rotary) else None


GPTJ_LAYOUT = Layout(
    "gptj", gptj,
    keys=(
        *make_keys("decoder", {
            "n_embd": ("dim", 4096), "n_head": ("heads", 16), "n_layer": ("layers", 28), "vocab_size": ("vocab", 50400),
            "n_inner": ("hidden", lambda document: 4 * (document.get("n_embd") or 4096)),
            "activation_function": ("activation", "gelu_new"), "layer_norm_epsilon": ("eps", 1e-5),
            "resid_pdrop": ("dropout", 0.0), "embd_pdrop": ("embed_dropout", 0.0),
            "attn_pdrop": ("attention_dropout", 0.0),
            "tie_word_embeddings": ("tied", False),
        }, arguments=("dim", "heads")),
        Key("rotary_dim", (), argument="rotated", found=rotated_of,
            default=lambda document: None if "rotary_dim" in document else 64),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@wte.weight", "decoder.final_norm.{p}": "@ln_f.{p}"},
        "@h.{i}.",
        {"attention.norm": "ln_1", "attention.inner.out": "attn.out_proj", "feed_forward.inner.up": "mlp.fc_in",
         "feed_forward.inner.down": "mlp.fc_out"},
        {"attention.inner.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj")},
        ignored=("@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "@h.{i}.attn.embed_positions", "lm_head.weight"),
    ),
    classes=drop_classes(decoder_classes("GPTJ", output=(Rule("head.{p}", "lm_head.{p}"),)), "ForTokenClassification"),
    base="transformer.", free=FREE_SUMMARY_FIELDS | {"n_positions", "n_ctx", "rotary", "scale_attn_weights"},
)


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


GPT_NEOX_LAYOUT = Layout(
    "gpt_neox", gpt_neox,
    keys=(kind_key("use_parallel_residual", "decoder.layers.block.sublayers.1", "parallel", argument="parallel",
                   default=True), *make_keys("decoder",
                                             {"hidden_size": ("dim", 6144), "num_attention_heads": ("heads", 64),
                                              "num_hidden_layers": ("layers", 44),
                                              "intermediate_size": ("hidden", 24576),
                                              "vocab_size": ("vocab", 50432), "hidden_act": ("activation", "gelu"),
                                              "layer_norm_eps": ("eps", 1e-5),
                                              "attention_bias": ("attention_bias", True),
                                              "hidden_dropout": ("dropout embed_dropout", 0.0),
                                              "attention_dropout": ("attention_dropout", 0.0),
                                              "tie_word_embeddings": ("tied", False)}),
          *rotary_key("decoder.layers.block.sublayers.0.inner.positions", share=0.25, length=2048),),
    weights=NameTable(
        {"embed.tokens.weight": "@embed_in.weight", "decoder.final_norm.{p}": "@final_layer_norm.{p}"},
        "@layers.{i}.",
        {"attention.norm": "input_layernorm", "attention.inner.out": "attention.dense",
         "feed_forward.norm": "post_attention_layernorm", "feed_forward.inner.up": "mlp.dense_h_to_4h",
         "feed_forward.inner.down": "mlp.dense_4h_to_h"},
        {"attention.inner.qkv": ("attention.query_key_value",)},
        ignored=("@layers.{i}.attention.bias", "@layers.{i}.attention.masked_bias", "@rotary_emb.inv_freq",
                 "@layers.{i}.attention.rotary_emb.inv_freq", "embed_out.weight", "lm_head.weight"),
    ),
    classes=decoder_classes("GPTNeoX", output=(Rule("head.weight", "embed_out.weight", instead="lm_head.weight"),)),
    base="gpt_neox.", free=frozenset({"max_position_embeddings", "is_decoder"}), normalize=normalize_rotary,
    older=OLDER,
)
