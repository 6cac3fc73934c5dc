"""LLaMA: pre-norm with RMSNorm, rotary positions, gated feed-forward, grouped queries, no biases."""

from __future__ import annotations

from saucier.checkpoints.choices import heads as published
from saucier.checkpoints.keys import Document, Key, Layout
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.config import (
    Block,
    Causal,
    Embedding,
    GatedFeedForward,
    LanguageHead,
    PreNorm,
    Projection,
    Repeat,
    RMSNorm,
    Rotary,
    SelfAttention,
    Softmax,
    Stack,
    Transformer,
)


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
) -> Transformer:
    """LLaMA. Source: Touvron et al. 2023, §2.2, arXiv:2302.13971.

    `hidden` defaults to two thirds of 4·dim, rounded up to a multiple of 256 as in the published models.
    """
    norm = RMSNorm(eps=eps)
    attention = SelfAttention(projection=Projection(heads=heads, kv_heads=kv_heads, bias=False, output_bias=False),
                              positions=Rotary(base=base), visibility=Causal(), kernel=Softmax(dropout=dropout))
    feed_forward = GatedFeedForward(hidden=hidden or -(-8 * dim // 3 // 256) * 256, activation="silu")
    residuals = tuple(PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return Transformer(
        dim=dim,
        embed=Embedding(vocab=vocab),
        decoder=Stack(layers=Repeat(block=Block(sublayers=residuals), times=layers), final_norm=norm),
        head=LanguageHead(tied=tied),
    )


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
PROJECTION = f"{ATTENTION}.inner.projection"
KEYS = (
    Key("hidden_size", ("dim",)),
    Key("num_hidden_layers", ("decoder.layers.times",)),
    Key("num_attention_heads", (f"{PROJECTION}.heads",)),
    Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), default=lambda document: document["num_attention_heads"]),
    Key(
        "head_dim",
        (f"{PROJECTION}.head_dim",),
        default=lambda document: document["hidden_size"] // document["num_attention_heads"],
    ),
    Key("attention_bias", (f"{PROJECTION}.bias", f"{PROJECTION}.output_bias"), default=False),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",)),
    Key("mlp_bias", (f"{FEED_FORWARD}.inner.bias",), default=False),
    Key("vocab_size", ("embed.vocab",)),
    Key("rms_norm_eps", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps", "decoder.final_norm.eps"), default=1e-6),
    Key("rope_theta", (f"{ATTENTION}.inner.positions.base",), default=10000.0),
    Key("tie_word_embeddings", ("head.tied",), default=False),
)


def weights(tree: Transformer) -> Rules:
    """The names of LLaMA: one matrix for each map."""
    assert tree.decoder is not None, "a LLaMA is a decoder"
    attention, feed_forward = (residual.inner for residual in tree.decoder.blocks()[0].sublayers)
    assert isinstance(attention, SelfAttention) and isinstance(feed_forward, GatedFeedForward), (
        "as the family's function says"
    )
    query, key, _ = attention.projection.widths(tree.dim)
    block, theirs = "decoder.blocks.{i}.", "@layers.{i}."
    return Rules(
        [
            Rule("embed.tokens.weight", "@embed_tokens.weight"),
            Rule("decoder.final_norm.weight", "@norm.weight"),
            Rule("head.weight", "lm_head.weight"),
            Rule(block + "attention.norm.weight", theirs + "input_layernorm.weight"),
            Rule(block + "feed_forward.norm.weight", theirs + "post_attention_layernorm.weight"),
            Rule(
                block + "attention.inner.qkv.{p}",
                tuple(f"{theirs}self_attn.{x}_proj.{{p}}" for x in "qkv"),
                Concat((query, key, key)),
            ),
            Rule(block + "attention.inner.out.{p}", theirs + "self_attn.o_proj.{p}"),
            Rule(
                block + "feed_forward.inner.up.{p}",
                (theirs + "mlp.gate_proj.{p}", theirs + "mlp.up_proj.{p}"),
                Concat((feed_forward.hidden,) * 2),
            ),
            Rule(block + "feed_forward.inner.down.{p}", theirs + "mlp.down_proj.{p}"),
        ],
        ignored=[
            "@layers.{i}.self_attn.rotary_emb.inv_freq",
            *(["lm_head.weight"] if tree.language_head and tree.language_head.tied else []),
        ],
    )


def plain_rotary(document: Document) -> Document:
    """Read the newer nested spelling of the rotary base as the older flat one."""
    nested = dict(document.get("rope_parameters") or {})
    rest = {name: value for name, value in document.items() if name != "rope_parameters"}
    if nested.pop("rope_type", "default") != "default" or set(nested) - {"rope_theta"}:
        return document  # refused as an unknown field
    return {**rest, **nested}


LLAMA_LAYOUT = Layout(
    "llama",
    llama,
    KEYS,
    weights,
    published("LlamaForCausalLM", "LlamaModel"),
    "model.",
    fixed={"hidden_act": "silu", "pretraining_tp": 1, "rope_scaling": None},
    free=frozenset({"max_position_embeddings"}),
    normalize=plain_rotary,
)
