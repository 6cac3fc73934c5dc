"""CTRL: a decoder with fixed sinusoids that was trained after control codes."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.classes import BARE, FREE_SUMMARY_FIELDS, LABELS, PADDING, head_class, keep_all, repeat_block
from saucier.checkpoints.fields import Key, make_keys
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import NameTable, Rule


def ctrl(dim: int = 1280, layers: int = 48, *, heads: int = 16, vocab: int = 246534, length: int = 256,
         hidden: int = 8192, dropout: float = 0.1) -> c.Transformer:
    """CTRL, 1.6 B. Source: Keskar et al. 2019, §3.2, arXiv:1909.05858.

    A control code is the first token of a text. Positions are all sines, then all cosines, as in the code release.
    """
    norm = c.LayerNorm(eps=1e-6)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal())
    positions = c.Sinusoidal(layout=c.SinusoidLayout(kind="halves"), length=length)
    feed_forward = c.FeedForward(hidden=hidden, activation="relu")
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=positions, scale=dim**0.5, segments=c.TablelessSegments(kind="tokens"),
                          dropout=dropout),
        decoder=repeat_block(layers, attention, feed_forward, place=c.PreNorm, norm=norm, dropout=dropout,
                             final_norm=norm),
        head=c.LanguageHead(bias=True),
    )


TEXT = head_class(c.ClassificationHead(pick=c.LastToken(), bias=False), keys=(LABELS, PADDING))
CTRL_LAYOUT = Layout(
    "ctrl", ctrl,
    keys=(
        *make_keys("decoder", {
            "n_embd": ("dim", 1280), "n_layer": ("layers", 48), "n_head": ("heads", 16), "dff": ("hidden", 8192),
            "vocab_size": ("vocab", 246534), "n_positions": ("length", 256), "resid_pdrop": ("dropout", 0.1),
            "embd_pdrop": ("embed_dropout", 0.1), "tie_word_embeddings": ("tied", True)}, arguments=("dim",)),
        Key("layer_norm_epsilon", ("decoder.final_norm.eps",), default=1e-6),
    ),
    weights=NameTable(
        {"embed.tokens.weight": "@w.weight", "decoder.final_norm.{p}": "@layernorm.{p}"},
        "@h.{i}.",
        {"attention.norm": "layernorm1", "attention.inner.out": "multi_head_attention.dense",
         "feed_forward.norm": "layernorm2", "feed_forward.inner.up": "ffn.0", "feed_forward.inner.down": "ffn.2"},
        {"attention.inner.qkv": ("multi_head_attention.Wq", "multi_head_attention.Wk", "multi_head_attention.Wv")},
        ignored=("lm_head.weight", "@pos_encoding"),
    ),
    classes={"CTRLLMHeadModel": Published(keep_all, (Rule("head.{p}", "lm_head.{p}"),)),
             "CTRLForSequenceClassification": TEXT, "CTRLModel": BARE},
    base="transformer.", free=FREE_SUMMARY_FIELDS | {"attn_pdrop", "n_ctx", "from_tf"},
)
"""The published class never reads `attn_pdrop`."""
