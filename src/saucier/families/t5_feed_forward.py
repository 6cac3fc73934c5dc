"""How T5 and mT5 say what their feed-forwards are: one field, or two that count more."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key
from saucier.errors import InputError
from saucier.families.t5_lineage import first_feed_forward

PLAIN = {name: ("feed_forward", ours) for name, ours in ACTIVATIONS.items()}
GATED = {"gated-gelu": ("gated_feed_forward", "gelu_tanh")} | {
    f"gated-{name}": ("gated_feed_forward", ours) for name, ours in ACTIVATIONS.items() if name != "gelu"}
"""A gate with GELU has always been its approximation; an exact one cannot be said."""


def found_feed_forward(tree: c.Transformer) -> tuple[str, str] | None:
    """Return kind and activation of a tree's feed-forwards."""
    inner = first_feed_forward(tree)
    return None if inner is None else (inner.kind, inner.activation)


FEED_FORWARD = Key("feed_forward_proj", (), names=PLAIN | GATED, default="relu", argument="feed_forward",
                   found=found_feed_forward)
OLDER = dict.fromkeys(("dense_act_fn", "is_gated_act"), "feed_forward_proj")


def one_feed_forward(document: Document, *, usual: str = "relu") -> Document:
    """Return the config with its feed-forward in one field; what is said of its activation and gate counts more."""
    proj = document.get("feed_forward_proj") or usual
    activation = document.get("dense_act_fn", "gelu_new" if proj == "gated-gelu" else str(proj).rpartition("-")[2])
    gated = document.get("is_gated_act", str(proj).startswith("gated-"))
    if gated and activation == "gelu":
        raise InputError("dense_act_fn 'gelu' with is_gated_act cannot be expressed", where="config.json",
                         remedy="a gate's GELU is its approximation: gelu_new")
    rest = {name: value for name, value in document.items() if name not in OLDER}
    said = OLDER.keys() & document.keys()
    return {**rest, "feed_forward_proj": f"{'gated-' if gated else ''}{activation}"} if said else rest
