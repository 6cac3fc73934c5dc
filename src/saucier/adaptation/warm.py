"""Starting an encoder-decoder from models of one stack: each side takes the weights that the other model has for it.

Not here: the tree of such a model, which `families.encoder_decoder.joined` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from saucier.adaptation.adopt import widened
from saucier.errors import InputError
from saucier.model import Transformer


@dataclass(frozen=True, slots=True)
class Warmed:
    """What became of the weights of both sides."""

    taken: tuple[str, ...]
    """Parameters that begin with a loaded value."""
    new: tuple[str, ...]
    """Parameters that keep their random start, such as the cross-attention."""


def warm_start(model: Transformer, *, encoder: Transformer | None = None,
               decoder: Transformer | None = None) -> Warmed:
    """Fill the sides of an encoder-decoder in place; a side that gets no model keeps its random start.

    Where both sides share weights, the encoder's stand. Source: Rothe et al. 2020, §3, arXiv:1907.12461.
    Raises `InputError` for a stack that fills nothing of its side, and for weights of another shape.
    """
    mine, taken = dict(model.named_parameters()), dict[str, None]()
    sides = (("decoder", decoder, written_name(model)), ("encoder", encoder, read_name))
    for side, other, ours in sides:  # the encoder last: what is shared is its own
        if other is not None:
            taken |= dict.fromkeys(filled(side, mine, dict(other.named_parameters()), ours))
    return Warmed(tuple(taken), tuple(name for name in mine if name not in taken))


def filled(side: str, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor],
           ours: Callable[[str], str]) -> list[str]:
    """Copy all weights that have a place, and return their names here."""
    found = {ours(name): value for name, value in theirs.items() if ours(name) in mine}
    wrong = [name for name, value in found.items() if not widened(mine[name], value)]
    if wrong or not any(".blocks." in name for name in found):
        what = f"{wrong[0]} has another shape" if wrong else "none of its blocks has a place here"
        raise InputError(what, where=f"warm_start.{side}",
                         remedy="leave the recipe out, so that the model follows from the weights")
    with torch.no_grad():
        for name, value in found.items():
            mine[name][:len(value)] = value.to(mine[name].dtype)
    return list(found)


def read_name(name: str) -> str:
    """Return what a parameter of another model is called on the side that reads; the head has no place there."""
    return "" if name.startswith("head.") else name.replace("decoder.", "encoder.", 1)


def written_name(model: Transformer) -> Callable[[str], str]:
    """Return what calls a parameter of another model by its name on the side that writes."""
    embed = "embed." if model.decoder_embed is None else "decoder_embed."
    shared = model.config.decoder is not None and model.config.decoder.tied

    def name(theirs: str) -> str:
        first, _, rest = theirs.partition(".")
        match first:
            case "embed":
                return embed + rest
            case "encoder" | "decoder":
                tied = f"encoder.{rest}"
                return tied if shared and ".cross." not in theirs else f"decoder.{rest}"
            case "head":
                return f"head.{rest.removeprefix('language.')}"
            case _:
                return ""

    return name
