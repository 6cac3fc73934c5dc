"""Where the fields that most published configs have stand in a tree: a family says only what they are called.

Not here: fields that one family has alone, which are `Key`s of its own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saucier import config as c
from saucier.checkpoints.keys import ACTIVATIONS, Key, below, look_up
from saucier.errors import InputError

Spelled = Mapping[str, tuple[str, Any]]
"""Published name -> its places by their words, with spaces between them, and its default (None: it must be said)."""


def places(stack: str) -> dict[str, tuple[str, ...]]:
    """Return what each word stands for in a tree with this stack.

    Blocks begin with self-attention and a feed-forward; a third sublayer is a cross-attention. Places that a tree has
    not are passed over, both in reading and in writing.
    """
    block = f"{stack}.layers.*.sublayers"
    attentions = (f"{block}.0", f"{block}.2")
    residuals = (f"{block}.0", f"{block}.1", f"{block}.2")
    return {
        "dim": ("dim",),
        "layers": (f"{stack}.layers.times",),
        "heads": below(attentions, "inner.projection.heads"),
        "head_dim": below(attentions, "inner.projection.head_dim"),
        "attention_bias": (f"{block}.0.inner.projection.bias", f"{block}.0.inner.projection.output_bias"),
        "hidden": (f"{block}.1.inner.hidden",),
        "activation": (f"{block}.1.inner.activation",),
        "vocab": ("embed.vocab",),
        "length": ("embed.positions.length", f"{block}.0.inner.positions.length"),
        "segments": ("embed.segments.count",),
        "eps": ("embed.norm.eps", *below(residuals, "norm.eps"), f"{stack}.final_norm.eps"),
        "dropout": below(residuals, "dropout"),
        "embed_dropout": ("embed.dropout",),
        "attention_dropout": below(attentions, "inner.kernel.dropout"),
        "tied": ("head.tied",),
    }


def fields(stack: str, spelled: Spelled, *, arguments: tuple[str, ...] = (),
           also: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Key, ...]:
    """Return the keys of published names for common places.

    `arguments`: words of places that go to the family's function, because they change the shape of its tree. `also`:
    further places of a word, such as those of a head.
    """
    known = {word: (*paths, *(also or {}).get(word, ())) for word, paths in places(stack).items()}
    return tuple(Key(foreign, tuple(path for word in words.split() for path in known[word]), default=default,
                     argument=words if words in arguments else None, names=ACTIVATIONS if words == "activation" else {})
                 for foreign, (words, default) in spelled.items())


def with_defaults(keys: tuple[Key, ...], **defaults: Any) -> tuple[Key, ...]:
    """Return keys of which some stand for other values where they are missing."""
    return tuple(replace(key, default=defaults[key.foreign]) if key.foreign in defaults else key for key in keys)


def attentions(tree: c.Transformer) -> list[c.SelfAttention]:
    """Return the self-attentions of the encoder, or of a decoder alone, in the order of their blocks."""
    stack = tree.encoder or tree.decoder
    return stack.attentions() if stack else []


def first_attention(tree: c.Transformer) -> c.SelfAttention:
    """Return the first of them. Raises `InputError` where there is none."""
    found = attentions(tree)
    if not found:
        raise InputError("it has no self-attention", where="model", remedy="save it in our own layout")
    return found[0]


def kind_at(foreign: str, path: str, kind: type[c.Config], *, argument: str, default: bool) -> Key:
    """Return the key of a field that says whether a part of one kind stands at a place."""
    return Key(foreign, (path,), argument=argument, default=default, theirs=lambda part: isinstance(part, kind),
               absent=False)


def positive(foreign: str, path: str, *, default: int, none: int) -> Key:
    """Return the key of a number that is none where it is not positive: `none` is written then, and read for null."""
    *_, last = path.split(".")
    owner = path.removesuffix(f".{last}")

    def found(tree: c.Transformer) -> int | None:
        part = look_up(tree, owner)
        return None if part is None else getattr(part, last, None) or none

    return Key(foreign, (path,), default=lambda document: none if foreign in document else default,
               ours=lambda value: value if value > 0 else None, found=found)
