"""Mistral: LLaMA with grouped queries and a sliding window. Mixtral: Mistral whose feed-forwards are eight experts, of
which each token goes through two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.fields import ACTIVATIONS, Key, look_up, make_keys, put, replace_defaults
from saucier.checkpoints.layout import Layout
from saucier.checkpoints.weight_names import Concat, Rule, Rules
from saucier.families.llama import (
    ATTENTION,
    COMMON_KEYS,
    FEED_FORWARD,
    FREE,
    GATED,
    PROJECTION,
    body,
    classes,
    llama,
    weights,
)
from saucier.families.rope import OLDER, normalize_rotary, rotary_key


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
    return put(tree, {f"{ATTENTION}.inner.visibility": add_window(window)})


def add_window(window: int | None) -> c.Visibility:
    """The past, or so much of it."""
    return c.Causal() if window is None else c.Causal() & c.Window(window)


def window_of(visibility: Any) -> int | None:
    """The inverse of `sliding`; None too for what it does not give."""
    match visibility:
        case c.Combined(kind="and", terms=(c.Causal(), c.Window(size=size))):
            return size
        case _:
            return None


WINDOW_KEYS = Key("sliding_window", (f"{ATTENTION}.inner.visibility",), nullable=True, default=4096, ours=add_window,
                  theirs=window_of)
GROUPED = Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), nullable=True, default=8)
MISTRAL_LAYOUT = Layout(
    "mistral", mistral,
    keys=(
        *COMMON_KEYS, WINDOW_KEYS, GROUPED, *make_keys("decoder", {**GATED, "intermediate_size": ("hidden", 14336)}),
        *rotary_key(f"{ATTENTION}.inner.positions", length=4096 * 32),
    ),
    weights=weights,
    classes=classes("Mistral"),
    base="model.", free=FREE, normalize=normalize_rotary, older=OLDER,
)


def mixtral(
    dim: int = 4096,
    layers: int = 32,
    *,
    heads: int = 32,
    kv_heads: int = 8,
    vocab: int = 32000,
    hidden: int = 14336,
    experts: int = 8,
    window: int | None = None,
) -> c.Transformer:
    """Mixtral 8x7B by default. Source: Jiang et al. 2024, §2 and table 1, arXiv:2401.04088.

    Each token goes through two experts. `window` counts the token itself; None sees the whole past.
    """
    tree = mistral(dim, layers, heads=heads, kv_heads=kv_heads, vocab=vocab, hidden=hidden, window=window, base=1e6)
    return put(tree, {f"{FEED_FORWARD}.inner": c.Experts(inner=c.GatedFeedForward(hidden=hidden), count=experts)})


EXPERTS = f"{FEED_FORWARD}.inner"


def expert_weights(tree: c.Transformer) -> Rules:
    """The names of Mixtral: LLaMA's, and those of the router and of each expert's three matrices."""
    ours, theirs = "decoder.blocks.{i}.experts.", "@layers.{i}.block_sparse_moe."
    one, hidden = theirs + "experts.{j}.", look_up(tree, f"{EXPERTS}.inner.hidden")
    return body(tree, (
        Rule(ours + "norm.weight", "@layers.{i}.post_attention_layernorm.weight"),
        Rule(ours + "inner.router.weight", theirs + "gate.weight"),
        Rule(ours + "inner.experts.{j}.up.weight", (one + "w1.weight", one + "w3.weight"), Concat((hidden,) * 2)),
        Rule(ours + "inner.experts.{j}.down.weight", one + "w2.weight")))


MIXTRAL_LAYOUT = Layout(
    "mixtral", mixtral,
    keys=(
        *replace_defaults(COMMON_KEYS, rms_norm_eps=1e-5), GROUPED, replace(WINDOW_KEYS, default=None),
        Key("hidden_act", (f"{EXPERTS}.inner.activation",), names=ACTIVATIONS, default="silu"),
        *rotary_key(f"{ATTENTION}.inner.positions", base=1e6, length=4096 * 32),
        Key("intermediate_size", (f"{EXPERTS}.inner.hidden",), default=14336),
        Key("num_local_experts", (f"{EXPERTS}.count",), default=8),
        Key("num_experts_per_tok", (f"{EXPERTS}.router.top",), default=2),
        Key("router_jitter_noise", (f"{EXPERTS}.noise",), default=0.0),
    ),
    weights=expert_weights,
    classes=classes("Mixtral"),
    base="model.", free=FREE | {"output_router_logits", "router_aux_loss_coef"}, normalize=normalize_rotary,
    older=OLDER,
)
