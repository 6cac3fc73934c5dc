"""LLaMA: pre-norm with RMSNorm, rotary positions, gated feed-forward, grouped queries, few biases."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.classes import PAST, decoder_classes, repeat_block
from saucier.checkpoints.fields import Key, look_up, make_keys
from saucier.checkpoints.layout import Layout, Published
from saucier.checkpoints.weight_names import Concat, NameTable, Rule, Rules
from saucier.families.rope import OLDER, normalize_rotary, rotary_key


def llama(
    dim: int = 4096,
    layers: int = 32,
    *,
    heads: int = 32,
    kv_heads: int | None = None,
    vocab: int = 32000,
    hidden: int | None = None,
    base: float = 10000.0,
    eps: float = 1e-6,
    tied: bool = False,
    dropout: float = 0.0,
    visibility: c.DecoderVisibility = PAST,
) -> c.Transformer:
    """LLaMA. Source: Touvron et al. 2023, §2.2, arXiv:2302.13971.

    `hidden` defaults to two thirds of 4·dim, rounded up to a multiple of 256 as in the published models.
    """
    norm = c.RMSNorm(eps=eps)
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, kv_heads=kv_heads, bias=False, output_bias=False),
        positions=c.Rotary(base=base), visibility=visibility, kernel=c.Softmax(dropout=dropout))
    feed_forward = c.GatedFeedForward(hidden=hidden or -(-8 * dim // 3 // 256) * 256, activation="silu")
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab),
        decoder=repeat_block(layers, attention, feed_forward, place=c.PreNorm, norm=norm, dropout=dropout,
                             final_norm=norm),
        head=c.LanguageHead(tied=tied),
    )


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
PROJECTION = f"{ATTENTION}.inner.projection"
COMMON_KEYS = (
    *make_keys("decoder", {
        "hidden_size": ("dim", 4096), "num_hidden_layers": ("layers", 32), "num_attention_heads": ("heads", 32),
        "attention_dropout": ("attention_dropout", 0.0), "vocab_size": ("vocab", 32000), "rms_norm_eps": ("eps", 1e-6),
        "tie_word_embeddings": ("tied", False)}),
    Key("head_dim", (f"{PROJECTION}.head_dim",), nullable=True),
)
"""Fields of LLaMA, Mistral and Mixtral."""
GATED = {"hidden_act": ("activation", "silu"), "intermediate_size": ("hidden", 11008)}


def body(tree: c.Transformer, more: tuple[Rule, ...]) -> Rules:
    """The names of everything but the feed-forward, and of these."""
    return NameTable(
        {"embed.tokens.weight": "@embed_tokens.weight", "decoder.final_norm.weight": "@norm.weight"},
        "@layers.{i}.",
        {"attention.norm.weight": "input_layernorm.weight", "attention.inner.out": "self_attn.o_proj"},
        {"attention.inner.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
        more,
        ("@layers.{i}.self_attn.rotary_emb.inv_freq", "@rotary_emb.inv_freq", "lm_head.weight"))(tree)


def weights(tree: c.Transformer) -> Rules:
    """The names of LLaMA and Mistral: one matrix for each map."""
    ours, theirs = "decoder.blocks.{i}.feed_forward.", "@layers.{i}."
    hidden = look_up(tree, f"{FEED_FORWARD}.inner.hidden")
    return body(tree, (
        Rule(ours + "norm.weight", theirs + "post_attention_layernorm.weight"),
        Rule(ours + "inner.up.{p}", (theirs + "mlp.gate_proj.{p}", theirs + "mlp.up_proj.{p}"), Concat((hidden,) * 2)),
        Rule(ours + "inner.down.{p}", theirs + "mlp.down_proj.{p}")))


def classes(name: str, *, answering: str = "model.") -> dict[str, Published]:
    """The published classes of a family of this lineage; `answering` is what the class for spans calls the body."""
    found = decoder_classes(name, tokens="score")
    spans = f"{name}ForQuestionAnswering"
    return {**found, spans: replace(found[spans], base=answering)}


FREE = frozenset({"max_position_embeddings", "pretraining_tp"})
LLAMA_LAYOUT = Layout(
    "llama", llama,
    keys=(
        *COMMON_KEYS, *make_keys("decoder", {**GATED, "attention_bias": ("attention_bias", False)}),
        *rotary_key(f"{ATTENTION}.inner.positions", length=2048),
        Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), nullable=True),
        Key("mlp_bias", (f"{FEED_FORWARD}.inner.bias",), default=False),
    ),
    weights=weights,
    classes=classes("Llama", answering="transformer."),
    base="model.", free=FREE, normalize=normalize_rotary, older=OLDER,
)
