"""Mistral: LLaMA with grouped queries and a sliding window."""

from __future__ import annotations

from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import Key, Layout, put
from saucier.checkpoints.places import fields
from saucier.families.llama import ATTENTION, COMMON_KEYS, FREE, GATED, PROJECTION, classes, llama, weights
from saucier.families.rope import OLDER, one_spelling, rotary_key


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


SLIDING = Key("sliding_window", (f"{ATTENTION}.inner.visibility",), nullable=True, default=4096, ours=sliding,
              theirs=window_of)
GROUPED = Key("num_key_value_heads", (f"{PROJECTION}.kv_heads",), nullable=True, default=8)
KEYS = (
    *COMMON_KEYS, SLIDING, GROUPED, *fields("decoder", {**GATED, "intermediate_size": ("hidden", 14336)}),
    *rotary_key(f"{ATTENTION}.inner.positions", length=4096 * 32),
)
MISTRAL_LAYOUT = Layout("mistral", mistral, KEYS, weights, classes("Mistral"), "model.", free=FREE,
                        normalize=one_spelling, older=OLDER)
