"""LLaMA and Mistral: pre-norm with RMSNorm, rotary positions, gated feed-forward, grouped queries, few biases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.choices import LABELS, bare, labelling, last_token, whole
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, Published, put
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families.rope import one_spelling, rotary_key


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
) -> c.Transformer:
    """LLaMA. Source: Touvron et al. 2023, §2.2, arXiv:2302.13971.

    `hidden` defaults to two thirds of 4·dim, rounded up to a multiple of 256 as in the published models.
    """
    norm = c.RMSNorm(eps=eps)
    attention = c.SelfAttention(
        projection=c.Projection(heads=heads, kv_heads=kv_heads, bias=False, output_bias=False),
        positions=c.Rotary(base=base), visibility=c.Causal(), kernel=c.Softmax(dropout=dropout))
    feed_forward = c.GatedFeedForward(hidden=hidden or -(-8 * dim // 3 // 256) * 256, activation="silu")
    residuals = tuple(c.PreNorm(inner=inner, norm=norm, dropout=dropout) for inner in (attention, feed_forward))
    return c.Transformer(
        dim=dim,
        embed=c.Embedding(vocab=vocab),
        decoder=c.Stack(layers=c.Repeat(block=c.Block(sublayers=residuals), times=layers), final_norm=norm),
        head=c.LanguageHead(tied=tied),
    )


def mistral(
    dim: int = 4096,
    layers: int = 32,
    *,
    heads: int = 32,
    kv_heads: int = 8,
    vocab: int = 32000,
    hidden: int = 14336,
    window: int | None = 4096,
    base: float = 10000.0,
) -> c.Transformer:
    """Mistral: LLaMA with grouped queries and a sliding window. Source: Jiang et al. 2023, §2, arXiv:2310.06825.

    `window` counts the token itself; None sees the whole past, as the models after the first do.
    """
    tree = llama(dim, layers, heads=heads, kv_heads=kv_heads, vocab=vocab, hidden=hidden, base=base, eps=1e-5)
    return put(tree, f"{ATTENTION}.inner.visibility", sliding(window))  # type: ignore[no-any-return]


def sliding(window: int | None) -> c.Visibility:
    """The past, or so much of it."""
    return c.Causal() if window is None else c.Causal() & c.Window(window)


def window_of(visibility: Any) -> int | None:
    """The inverse of `sliding`; None too for what it does not give."""
    match visibility:
        case c.And(terms=(c.Causal(), c.Window(size=size))):
            return size
        case _:
            return None


ATTENTION, FEED_FORWARD = "decoder.layers.block.sublayers.0", "decoder.layers.block.sublayers.1"
PROJECTION, NORMS = f"{ATTENTION}.inner.projection", (f"{ATTENTION}.norm.eps", f"{FEED_FORWARD}.norm.eps",
                                                      "decoder.final_norm.eps")
COMMON_KEYS = (
    Key("hidden_size", ("dim",), default=4096),
    Key("num_hidden_layers", ("decoder.layers.times",), default=32),
    Key("num_attention_heads", (f"{PROJECTION}.heads",), default=32),
    Key("head_dim", (f"{PROJECTION}.head_dim",), nullable=True),
    Key("attention_dropout", (f"{ATTENTION}.inner.kernel.dropout",), default=0.0),
    Key("vocab_size", ("embed.vocab",), default=32000),
    Key("rms_norm_eps", NORMS, default=1e-6),
    Key("tie_word_embeddings", ("head.tied",), default=False),
)
"""Fields of LLaMA, Mistral and Mixtral."""
ACTIVATION = Key("hidden_act", (f"{FEED_FORWARD}.inner.activation",), names=ACTIVATIONS, default="silu")
LLAMA_KEYS = (
    *COMMON_KEYS, ACTIVATION,
    *rotary_key(f"{ATTENTION}.inner.positions", length=2048),
    Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), nullable=True),
    Key("attention_bias", (f"{PROJECTION}.bias", f"{PROJECTION}.output_bias"), default=False),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",), default=11008),
    Key("mlp_bias", (f"{FEED_FORWARD}.inner.bias",), default=False),
)
SLIDING = Key("sliding_window", (f"{ATTENTION}.inner.visibility",), nullable=True, default=4096, ours=sliding,
              theirs=window_of)
GROUPED = Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), nullable=True, default=8)
MISTRAL_KEYS = (
    *COMMON_KEYS, ACTIVATION, SLIDING, GROUPED,
    *rotary_key(f"{ATTENTION}.inner.positions", length=4096 * 32),
    Key("intermediate_size", (f"{FEED_FORWARD}.inner.hidden",), default=14336),
)


def body(tree: c.Transformer) -> list[Rule]:
    """The names of everything but the feed-forward."""
    assert tree.decoder is not None, "a LLaMA is a decoder"
    attention = tree.decoder.blocks()[0].sublayers[0].inner
    assert isinstance(attention, c.SelfAttention), "as the family's function says"
    query, key, _ = attention.projection.widths(tree.dim)
    block, theirs = "decoder.blocks.{i}.", "@layers.{i}."
    return [
        Rule("embed.tokens.weight", "@embed_tokens.weight"),
        Rule("decoder.final_norm.weight", "@norm.weight"),
        Rule(block + "attention.norm.weight", theirs + "input_layernorm.weight"),
        Rule(block + "feed_forward.norm.weight", theirs + "post_attention_layernorm.weight"),
        Rule(block + "attention.inner.qkv.{p}", tuple(f"{theirs}self_attn.{x}_proj.{{p}}" for x in "qkv"),
             Concat((query, key, key))),
        Rule(block + "attention.inner.out.{p}", theirs + "self_attn.o_proj.{p}"),
    ]


BUFFERS = ("@layers.{i}.self_attn.rotary_emb.inv_freq", "@rotary_emb.inv_freq", "lm_head.weight")
"""What files may hold beside, and what says nothing."""


def weights(tree: c.Transformer) -> Rules:
    """The names of LLaMA and Mistral: one matrix for each map."""
    assert tree.decoder is not None, "a LLaMA is a decoder"
    feed_forward = tree.decoder.blocks()[0].sublayers[1].inner
    assert isinstance(feed_forward, c.GatedFeedForward), "as the family's function says"
    ours, theirs = "decoder.blocks.{i}.feed_forward.inner.", "@layers.{i}.mlp."
    return Rules([
        *body(tree),
        Rule(ours + "up.{p}", (theirs + "gate_proj.{p}", theirs + "up_proj.{p}"), Concat((feed_forward.hidden,) * 2)),
        Rule(ours + "down.{p}", theirs + "down_proj.{p}"),
    ], ignored=BUFFERS)


def classes(name: str, *, answering: str = "model.") -> dict[str, Published]:
    """The published classes of a family of this lineage; `answering` is what the class for spans calls the body."""
    dropout = Key("classifier_dropout", ("head.dropout",), default=0.1)
    return {
        f"{name}ForCausalLM": Published(whole.keep, (Rule("head.weight", "lm_head.weight"),)),
        f"{name}ForSequenceClassification": last_token,
        f"{name}ForTokenClassification": labelling(c.TokenHead(), "score", keys=(LABELS, dropout)),
        f"{name}ForQuestionAnswering": replace(labelling(c.SpanHead(), "qa_outputs", keys=()), base=answering),
        f"{name}Model": bare,
    }


FREE = frozenset({"max_position_embeddings", "pretraining_tp"})
LLAMA_LAYOUT = Layout("llama", llama, LLAMA_KEYS, weights, classes("Llama", answering="transformer."), "model.",
                      free=FREE, normalize=one_spelling)
MISTRAL_LAYOUT = Layout("mistral", mistral, MISTRAL_KEYS, weights, classes("Mistral"), "model.", free=FREE,
                        normalize=one_spelling)
