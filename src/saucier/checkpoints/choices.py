"""What published classes keep of a family's tree: small functions from tree to tree, named in the families' layouts."""

from __future__ import annotations

from collections.abc import Callable

from saucier import config as c

Choice = Callable[[c.Transformer], c.Transformer]


def whole(tree: c.Transformer) -> c.Transformer:
    """Everything that the family's function gives."""
    return tree


def bare(tree: c.Transformer) -> c.Transformer:
    """The body alone, its pooler included."""
    return tree.model_copy(update={"head": None})


def encoder_alone(tree: c.Transformer) -> c.Transformer:
    """The encoder of an encoder-decoder."""
    return tree.model_copy(update={"head": None, "decoder": None, "decoder_embed": None})


def language_only(tree: c.Transformer) -> c.Transformer:
    """The language head without the sentence classifier and what only it reads."""
    return tree.model_copy(update={"head": tree.language_head, "pooler": None})


def heads(language: str, body: str) -> dict[str, Choice]:
    """Return the choices of a family that is published with a language head and without one."""
    return {language: whole, body: bare}
