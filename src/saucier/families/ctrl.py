"""CTRL: a decoder with fixed sinusoids that was trained behind control codes."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import LABELS, PADDING, bare, labelling, whole
from saucier.checkpoints.keys import Key, Layout, Published
from saucier.checkpoints.rules import Concat, Rule, Rules


def ctrl(dim: int = 1280, layers: int = 48, *, heads: int = 16, vocab: int = 246534, length: int = 256,
         hidden: int = 8192, dropout: float = 0.1) -> c.Transformer:
    """CTRL, 1.6 B. Source: Keskar et al. 2019, §3.2, arXiv:1909.05858.

    A control code is the first token of a text. Positions are all sines, then all cosines, as in the code release.
    """
    norm = c.LayerNorm(eps=1e-6)
    attention = c.SelfAttention(projection=c.Projection(heads=heads), visibility=c.Causal())
    feed_forward = c.FeedForward(hidden=hidden, activation="relu")
    residuals = tuple(c.PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab, positions=c.Sinusoidal(layout=c.Halves(), length=length), scale=dim**0.5,
                          segments=c.SegmentTokens(), dropout=dropout),
        decoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers), final_norm=norm),
        head=c.LanguageHead(bias=True),
    )


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
KEYS = (
    Key("n_embd", ("dim",), argument="dim", default=1280),
    Key("n_layer", ("decoder.layers.times",), default=48),
    Key("n_head", (f"{ATTENTION}.inner.projection.heads",), default=16),
    Key("dff", (f"{FEED_FORWARD}.inner.hidden",), default=8192),
    Key("vocab_size", ("embed.vocab",), default=246534),
    Key("n_positions", ("embed.positions.length",), default=256),
    Key("layer_norm_epsilon", ("decoder.final_norm.eps",), default=1e-6),
    Key("resid_pdrop", (f"{ATTENTION}.dropout", f"{FEED_FORWARD}.dropout"), default=0.1),
    Key("embd_pdrop", ("embed.dropout",), default=0.1),
    Key("tie_word_embeddings", ("head.tied",), default=True),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of the body."""
    names = {"attention.norm": "layernorm1", "attention.inner.out": "multi_head_attention.dense",
             "feed_forward.norm": "layernorm2", "feed_forward.inner.up": "ffn.0", "feed_forward.inner.down": "ffn.2"}
    block, theirs = "decoder.blocks.{i}.", "@h.{i}."
    return Rules([
        Rule("embed.tokens.weight", "@w.weight"), Rule("decoder.final_norm.{p}", "@layernorm.{p}"),
        Rule(block + "attention.inner.qkv.{p}", tuple(f"{theirs}multi_head_attention.W{x}.{{p}}" for x in "qkv"),
             Concat((tree.dim,) * 3)),
        *(Rule(block + ours + ".{p}", theirs + other + ".{p}") for ours, other in names.items()),
    ], ignored=["lm_head.weight", "@pos_encoding"])


TEXT = labelling(c.ClassificationHead(pick=c.LastToken(), bias=False), keys=(LABELS, PADDING))
FREE = frozenset({"attn_pdrop", "n_ctx", "from_tf", "summary_type", "summary_use_proj", "summary_activation",
                  "summary_proj_to_labels", "summary_first_dropout"})
"""Fields that the published class never reads."""
CTRL_LAYOUT = Layout(
    "ctrl", ctrl, KEYS, weights,
    {"CTRLLMHeadModel": Published(whole.keep, (Rule("head.{p}", "lm_head.{p}"),)),
     "CTRLForSequenceClassification": TEXT, "CTRLModel": bare},
    "transformer.", free=FREE,
)
