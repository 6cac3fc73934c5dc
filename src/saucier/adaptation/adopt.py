"""Giving a model the weights of another one: the same body, maybe with more tokens, maybe under another head.

Letters: V vocab, D dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saucier import config as c
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.plain import first_difference


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Tokens that the other model does not know."""

    first: int
    """The id of the first one; the others follow."""
    pieces: Sequence[Sequence[int]]
    """For each new token the ids that spelled it so far."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of the weights."""

    new: tuple[str, ...]
    """Parameters that the other model does not have; they keep their starting weights."""
    left: tuple[str, ...]
    """Parameters of the other model that have no place here."""
    tokens: int = 0
    """Tokens that began as the mean of their pieces."""
    wider: tuple[str, ...] = ()
    """Parameters that have more rows than those of the other model."""


def adopt(model: Transformer, other: Transformer, tokens: NewTokens | None = None) -> Adopted:
    """Fill `model` in place with all that it shares with `other`, and say what it does not share.

    The row of a new token, in every table and output matrix, is the mean of the rows of its pieces.
    Raises `InputError` where the two bodies differ in more than vocabulary, mix, pooler and head.
    """
    refuse_other_body(model.config, other.config)
    sizes = model.config.embed.vocab, other.config.embed.vocab
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    fits = {name for name in mine.keys() & theirs.keys() if widened(mine[name], theirs[name])}
    wider = tuple(name for name in fits if len(mine[name]) > len(theirs[name]))
    with torch.no_grad():
        for name in fits:
            target, source = mine[name], theirs[name].to(mine[name].dtype)
            target[:len(source)] = source
            if tokens is not None and (len(target), len(source)) == sizes:
                fill_rows(target, source, tokens)
    return Adopted(tuple(name for name in mine if name not in fits), tuple(name for name in theirs if name not in fits),
                   len(tokens.pieces) if tokens else 0, wider)


def take_decoder_off(model: Transformer, config: c.Transformer) -> None:
    """Leave an encoder-decoder its encoder alone, in place, where another config has that alone."""
    if config.decoder is None and model.config.encoder is not None:
        model.decoder = model.decoder_embed = None
        model.config = model.config.model_copy(update={"decoder": None, "decoder_embed": None, "default_target": None})


def widened(mine: Tensor, theirs: Tensor) -> bool:
    """Say whether a tensor takes another's place, with as many rows or more."""
    return mine.shape[1:] == theirs.shape[1:] and mine.dim() == theirs.dim() and len(mine) >= len(theirs)


def fill_rows(target: Tensor, source: Tensor, tokens: NewTokens) -> None:
    """Set the rows of new tokens. Shapes: target [V + more, D] or [V + more], source [V, D] or [V]."""
    for number, pieces in enumerate(tokens.pieces, start=tokens.first):
        target[number] = source[list(pieces)].float().mean(dim=0).to(target.dtype)


def refuse_other_body(mine: c.Transformer, theirs: c.Transformer) -> None:
    """Raise `InputError`, naming the first difference, where the bodies are not of the same shape."""
    found = first_difference(body(mine), body(theirs))
    if found is not None:
        key, here, there = found
        raise InputError(f"the model to begin with has {key} = {there}, and this one {here}", where=f"model.{key}",
                         remedy="leave the recipe out, or use one of the same shape (`saucier diff` shows all)")


def body(config: c.Transformer) -> Any:
    """Return a config as plain values without what may differ."""
    values = config.model_dump(mode="json", exclude={"head", "pooler", "mix", "initialization", "source"})
    for embed in (values["embed"], values["decoder_embed"] or {}):
        embed.pop("vocab", None)
    return shaped(values)


WEIGHTLESS = ("dropout", "otherwise")
"""Keys that say nothing of a body's weights: the one belongs to the training, the other (which tokens are global, or of
which segment, where a batch does not say it) to the task."""


def shaped(value: Any) -> Any:
    """Leave out every key that says nothing of the weights."""
    if isinstance(value, dict):
        return {key: shaped(one) for key, one in value.items() if key not in WEIGHTLESS}
    return [shaped(one) for one in value] if isinstance(value, list | tuple) else value
