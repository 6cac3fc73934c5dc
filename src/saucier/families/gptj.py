"""GPT-J: rotated queries and keys, attention and feed-forward side by side on one norm."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import SUMMARY_FIELDS, decoder_classes, without
from saucier.checkpoints.keys import Key, Layout
from saucier.checkpoints.names import NameTable
from saucier.checkpoints.places import fields, first_attention
from saucier.checkpoints.rules import Rule


def gptj(dim: int = 4096, layers: int = 28, *, heads: int = 16, vocab: int = 50400, hidden: int | None = None,
         rotated: int = 64, dropout: float = 0.0) -> c.Transformer:
    """GPT-J: attention and feed-forward read one norm; `rotated` values of each head turn in pairs of neighbours.

    Source: Wang and Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model".
    """
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, bias=False, output_bias=False), visibility=c.Causal(),
        positions=c.Rotary(share=rotated / (dim // heads), pairs=c.Neighbours()), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.FeedForward(hidden=hidden or 4 * dim, activation="gelu_tanh")
    block = c.Block(sublayers=(c.PreNorm(inner=attention, dropout=dropout),
                               c.Parallel(inner=feed_forward, dropout=dropout)))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, segments=c.SegmentTokens(), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=block, times=layers), final_norm=c.LayerNorm()),
        head=c.LanguageHead(tied=False, bias=True),
    )


def rotated_of(tree: c.Transformer) -> int | None:
    """How many values of each head are rotated."""
    first = first_attention(tree)
    rotary = first.positions
    return rotary.width(first.projection.widths(tree.dim)[2]) if isinstance(rotary, c.Rotary) else None


def by_fields(dim: int, heads: int, rotated: int) -> c.Transformer:
    """GPT-J by the fields that say how much of each head is rotated."""
    return gptj(dim, heads=heads, rotated=rotated)


KEYS = (
    *fields("decoder", {
        "n_embd": ("dim", 4096), "n_head": ("heads", 16), "n_layer": ("layers", 28), "vocab_size": ("vocab", 50400),
        "n_inner": ("hidden", lambda document: 4 * (document.get("n_embd") or 4096)),
        "activation_function": ("activation", "gelu_new"), "layer_norm_epsilon": ("eps", 1e-5),
        "resid_pdrop": ("dropout", 0.0), "embd_pdrop": ("embed_dropout", 0.0), "attn_pdrop": ("attention_dropout", 0.0),
        "tie_word_embeddings": ("tied", False),
    }, arguments=("dim", "heads")),
    Key("rotary_dim", (), argument="rotated", found=rotated_of,
        default=lambda document: None if "rotary_dim" in document else 64),
)
NAMES = NameTable(
    {"embed.tokens.weight": "@wte.weight", "decoder.final_norm.{p}": "@ln_f.{p}"},
    "@h.{i}.",
    {"attention.norm": "ln_1", "attention.inner.out": "attn.out_proj", "feed_forward.inner.up": "mlp.fc_in",
     "feed_forward.inner.down": "mlp.fc_out"},
    {"attention.inner.qkv": ("attn.q_proj", "attn.k_proj", "attn.v_proj")},
    ignored=("@h.{i}.attn.bias", "@h.{i}.attn.masked_bias", "@h.{i}.attn.embed_positions", "lm_head.weight"),
)
GPTJ_LAYOUT = Layout(
    "gptj", by_fields, KEYS, NAMES,
    without(decoder_classes("GPTJ", output=(Rule("head.{p}", "lm_head.{p}"),)), "ForTokenClassification"),
    "transformer.", free=SUMMARY_FIELDS | {"n_positions", "n_ctx", "rotary", "scale_attn_weights"})
