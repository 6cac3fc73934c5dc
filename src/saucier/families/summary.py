"""The published fields that say how a text's vector is made for a head that labels texts or compares choices."""

from __future__ import annotations

from saucier import config as c
from saucier.checkpoints.choices import labelling
from saucier.checkpoints.keys import ACTIVATIONS, Document, Key, Published
from saucier.errors import InputError

NONE = ("", "linear")
PICKS = {"first": c.First(), "last": c.Last(), "mean": c.MeanAll(), "cls_index": c.Chosen()}
"""Where the vector is taken; the reference's fifth, `attn`, is not written there either."""
FIELDS = frozenset({"summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
                    "summary_last_dropout"})

TO_LABELS = tuple(Key(name, (), names={True: True}, default=True, found=lambda tree: True)
                  for name in ("summary_use_proj", "summary_proj_to_labels"))
"""Fields of a summary that always has a map, as wide as there are labels."""
NO_ACTIVATION = Key("summary_activation", (), names=dict.fromkeys(NONE, ""), default="", found=lambda tree: None)
"""The field of a summary whose map is the output."""


def pick(default: str) -> Key:
    """Return the key of where the vector is taken."""
    return Key("summary_type", ("head.pick",), default=default, names=PICKS)


def summarized(head: c.ClassificationHead | c.ChoiceHead, output: str = "classifier", *, kind: str, used: bool = True,
               activation: str, keys: tuple[Key, ...] = ()) -> Published:
    """Return a class whose head reads a summary; `kind`, `used` and `activation` are a family's defaults.

    `keys` beside the summary's own.
    """
    def making(tree: c.Transformer, document: Document) -> c.Head:
        """The head with a map. Raises `InputError` for an activation without a map before it."""
        if not document.get("summary_use_proj", used) and document.get("summary_activation", activation) not in NONE:
            raise InputError("summary_use_proj False with a summary_activation cannot be expressed",
                             where="config.json",
                             remedy="the published class with it computes an activation of the bare vector")
        return head.model_copy(update={"transform": c.Transform()})

    return labelling(making, output, dense="sequence_summary.summary", keys=(
        *keys, pick(kind),
        Key("summary_use_proj", ("head.transform",), default=used, ours=lambda said: c.Transform() if said else None,
            found=lambda tree: getattr(tree.head, "transform", None) is not None),
        Key("summary_activation", ("head.transform.activation",), default=activation, absent="linear",
            names={**ACTIVATIONS, **dict.fromkeys(NONE, "identity")}),
        Key("summary_first_dropout", ("head.transform.dropout",), default=0.0),
        Key("summary_last_dropout", ("head.dropout",), default=0.1)))


def spelled_out(document: Document) -> Document:
    """Tell "no activation", which a config says by null, from a field that is missing."""
    said = "summary_activation" in document and document["summary_activation"] is None
    return {**document, "summary_activation": "linear"} if said else dict(document)
