"""The published fields that say how a text's vector is made for a head that compares choices."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key
from saucier.errors import InputError


def summarizing(tree: c.Transformer, document: Document) -> c.Head:
    """Return the head that compares choices. Raises `InputError` for an activation without a map before it."""
    if not document.get("summary_use_proj", True) and document.get("summary_activation", "gelu") not in NONE:
        raise InputError("summary_use_proj False with a summary_activation cannot be expressed", where="config.json",
                         remedy="the published class with it computes an activation of the bare vector")
    return c.ChoiceHead(pick=c.First(), transform=c.Transform())


NONE = ("", "linear")
SUMMARY = (
    Key("summary_type", ("head.pick",), default="first",
        names={"first": c.First(), "last": c.Last(), "cls_index": c.Last()}),
    Key("summary_use_proj", ("head.transform",), default=True, ours=lambda used: c.Transform() if used else None,
        found=lambda tree: getattr(tree.head, "transform", None) is not None),
    Key("summary_activation", ("head.transform.activation",), default="gelu",
        names={**ACTIVATIONS, **dict.fromkeys(NONE, "identity")}),
    Key("summary_first_dropout", ("head.transform.dropout",), default=0.0),
    Key("summary_last_dropout", ("head.dropout",), default=0.1),
)


def spelled_out(document: Document) -> Document:
    """Tell "no activation", which a config says by null, from a field that is missing."""
    said = "summary_activation" in document and document["summary_activation"] is None
    return {**document, "summary_activation": "linear"} if said else dict(document)
