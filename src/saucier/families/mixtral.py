"""Mixtral: Mistral whose feed-forwards are eight experts, of which each token goes through two."""

from __future__ import annotations

from dataclasses import replace

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Key, Layout, look_up, put
from saucier.checkpoints.places import with_defaults
from saucier.checkpoints.rules import Concat, Rule, Rules
from saucier.families.llama import ATTENTION, COMMON_KEYS, FEED_FORWARD, FREE, body, classes
from saucier.families.mistral import GROUPED, SLIDING, mistral
from saucier.families.rope import OLDER, one_spelling, rotary_key


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
    many = c.Experts(inner=c.GatedFeedForward(hidden=hidden), count=experts)
    return put(tree, f"{FEED_FORWARD}.inner", many)  # type: ignore[no-any-return]


EXPERTS = f"{FEED_FORWARD}.inner"
KEYS = (
    *with_defaults(COMMON_KEYS, rms_norm_eps=1e-5), GROUPED, replace(SLIDING, default=None),
    Key("hidden_act", (f"{EXPERTS}.inner.activation",), names=ACTIVATIONS, default="silu"),
    *rotary_key(f"{ATTENTION}.inner.positions", base=1e6, length=4096 * 32),
    Key("intermediate_size", (f"{EXPERTS}.inner.hidden",), default=14336),
    Key("num_local_experts", (f"{EXPERTS}.count",), default=8),
    Key("num_experts_per_tok", (f"{EXPERTS}.router.top",), default=2),
    Key("router_jitter_noise", (f"{EXPERTS}.noise",), default=0.0),
)


def weights(tree: c.Transformer) -> Rules:
    """The names of Mixtral: LLaMA's, and those of the router and of each expert's three matrices."""
    ours, theirs = "decoder.blocks.{i}.experts.", "@layers.{i}.block_sparse_moe."
    one, hidden = theirs + "experts.{j}.", look_up(tree, f"{EXPERTS}.inner.hidden")
    return body(tree, (
        Rule(ours + "norm.weight", "@layers.{i}.post_attention_layernorm.weight"),
        Rule(ours + "inner.router.weight", theirs + "gate.weight"),
        Rule(ours + "inner.experts.{j}.up.weight", (one + "w1.weight", one + "w3.weight"), Concat((hidden,) * 2)),
        Rule(ours + "inner.experts.{j}.down.weight", one + "w2.weight")))


MIXTRAL_LAYOUT = Layout("mixtral", mixtral, KEYS, weights, classes("Mixtral"), "model.",
                        free=FREE | {"output_router_logits", "router_aux_loss_coef"}, normalize=one_spelling,
                        older=OLDER)
