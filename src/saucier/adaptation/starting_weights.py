"""Weights of a model from another one: of the same body, of one side of an encoder-decoder, or for a changed config.

Not here: the tree of an encoder-decoder from two models, which `families.encoder_decoder.joined` makes.
Letters: V vocab, D dim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from saucier import config as c
from saucier.adaptation.quantization.maps import refuse_quantized
from saucier.adaptation.surgery.operations import NewTokens
from saucier.config import Transformer as Config
from saucier.errors import InputError
from saucier.model import Transformer, allocate_model
from saucier.parts.attention import CrossAttention, SelfAttention
from saucier.parts.block import Block, Residual
from saucier.plain import first_difference


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What became of the weights."""

    new: tuple[str, ...] = ()
    """Parameters that the other model does not have; they keep their starting weights, such as a pooler."""
    left: tuple[str, ...] = ()
    """Parameters of the other model that have no place here."""
    tokens: int = 0
    """Tokens that began as the mean of their pieces."""
    wider: tuple[str, ...] = ()
    """Parameters that have more rows than those of the other model."""
    taken: tuple[str, ...] = ()
    """Parameters that begin with a loaded value."""


def initialize_from(model: Transformer, other: Transformer, tokens: NewTokens | None = None) -> TransferReport:
    """Fill `model` in place with all that it shares with `other`, and say what it does not share.

    `tokens`: those that the other model does not know.

    The row of a new token, in every table and output matrix, is the mean of the rows of its pieces. What was rounded
    when `other` was loaded is taken as it is stored.
    Raises `InputError` where the two bodies differ in more than vocabulary, mix, pooler and head.
    """
    other.restore_stored()
    return transfer_weights(model, other, tokens)


def transfer_weights(model: Transformer, other: Transformer, tokens: NewTokens | None = None) -> TransferReport:
    """Do the same with the numbers that `other` has, as loading an adapter does."""
    check_same_body(model.config, other.config)
    refuse_quantized(other, "the start of a model of another shape or head")
    sizes = model.config.embed.vocab, other.config.embed.vocab
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    fits = {name: value for name, value in theirs.items() if name in mine and takes_rows_of(mine[name], value)}
    copy_rows(mine, fits)
    with torch.no_grad():
        for name, source in fits.items():
            if tokens is not None and (len(mine[name]), len(source)) == sizes:
                fill_token_rows(mine[name], source.to(mine[name].dtype), tokens)
    return TransferReport(tuple(name for name in mine if name not in fits),
                          tuple(name for name in theirs if name not in fits), len(tokens.pieces) if tokens else 0,
                          tuple(name for name in fits if len(mine[name]) > len(theirs[name])), tuple(fits))


def copy_rows(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    """Copy tensors over the first rows of those with their names."""
    with torch.no_grad():
        for name, value in theirs.items():
            mine[name][:len(value)] = value.to(mine[name].dtype)


def drop_decoder(model: Transformer, config: c.Transformer) -> None:
    """Leave an encoder-decoder its encoder alone, in place, where another config has that alone."""
    if config.decoder is None and model.config.encoder is not None:
        model.decoder = model.decoder_embed = None
        model.config = model.config.model_copy(update={"decoder": None, "decoder_embed": None, "default_target": None})


def takes_rows_of(mine: Tensor, theirs: Tensor) -> bool:
    """Say whether a tensor takes another's place, with as many rows or more."""
    return mine.shape[1:] == theirs.shape[1:] and mine.dim() == theirs.dim() and len(mine) >= len(theirs)


def fill_token_rows(target: Tensor, source: Tensor, tokens: NewTokens) -> None:
    """Set the rows of new tokens. Shapes: target [V + more, D] or [V + more], source [V, D] or [V]."""
    for number, pieces in enumerate(tokens.pieces, start=tokens.first):
        target[number] = source[list(pieces)].float().mean(dim=0).to(target.dtype)


def check_same_body(mine: c.Transformer, theirs: c.Transformer) -> None:
    """Raise `InputError`, naming the first difference, where the bodies are not of the same shape."""
    if differs := first_difference(describe_body(mine), describe_body(theirs)):
        key, here, there = differs
        raise InputError(f"the model to begin with has {key} = {there}, and this one {here}", where=f"model.{key}",
                         remedy="leave the recipe out, or use one of the same shape (`saucier diff` shows all)")


def describe_body(config: c.Transformer) -> Any:
    """Return a config as plain values without what may differ."""
    values = config.model_dump(mode="json", exclude={"head", "pooler", "mix", "initialization", "source"})
    for embed in (values["embed"], values["decoder_embed"] or {}):
        embed.pop("vocab", None)
    return drop_weightless_keys(values)


WEIGHTLESS = ("dropout", "layer_drop", "otherwise", "default_target")
"""Keys that say nothing of a body's weights: two belong to the training, the others (which tokens are global, or of
which segment, and what a decoder reads, where a batch does not say it) to the task."""


def drop_weightless_keys(value: Any) -> Any:
    """Leave out every key that says nothing of the weights."""
    if isinstance(value, dict):
        return {key: drop_weightless_keys(one) for key, one in value.items() if key not in WEIGHTLESS}
    return [drop_weightless_keys(one) for one in value] if isinstance(value, list | tuple) else value


def warm_start(model: Transformer, *, encoder: Transformer | None = None,
               decoder: Transformer | None = None) -> TransferReport:
    """Fill the sides of an encoder-decoder in place; a side that gets no model keeps its random start.

    Where both sides share weights, the encoder's count. A cross-attention that the decoder's model does not have begins
    with the weights of its block's self-attention, where those have its shapes; the paper's is random, and takes far
    longer to learn to copy. Source: Rothe et al. 2020, §3, arXiv:1907.12461.
    Raises `InputError` for a stack that fills nothing of its side, and for weights of another shape.
    """
    mine, taken = dict(model.named_parameters()), dict[str, None]()
    sides = (("decoder", decoder, make_decoder_renamer(model)), ("encoder", encoder, rename_for_encoder))
    for side, other, ours in sides:  # the encoder last: what is shared is its own
        if other is not None:
            other.restore_stored()
            taken |= dict.fromkeys(fill_side(side, mine, dict(other.named_parameters()), ours))
    if decoder is not None and model.decoder is not None and not any(".cross." in name for name in taken):
        filled = start_cross_attentions(model.decoder)
        taken |= dict.fromkeys(name for name, value in mine.items() if any(value is one for one in filled))
    return TransferReport(new=tuple(name for name in mine if name not in taken), taken=tuple(taken))


@torch.no_grad()
def start_cross_attentions(decoder: nn.Module) -> list[Tensor]:
    """Copy each block's self-attention, with its norm, into its cross-attention, and return what was filled."""
    filled: list[Tensor] = []
    for block in (one for one in decoder.modules() if isinstance(one, Block)):
        parts = {type(one.inner): one for one in block.values() if isinstance(one, Residual)}
        if not {SelfAttention, CrossAttention} <= parts.keys():
            continue
        own, mine = parts[SelfAttention], dict(parts[CrossAttention].named_parameters())
        theirs: dict[str, Tensor] = dict(own.named_parameters())
        for name in [name for name in theirs if name.startswith("inner.qkv.")]:
            query = theirs["inner.out.weight"].shape[1]
            theirs[name.replace("qkv", "q")], theirs[name.replace("qkv", "kv")] = theirs[name].tensor_split([query])
            del theirs[name]
        if {name: one.shape for name, one in mine.items()} == {name: one.shape for name, one in theirs.items()}:
            filled += [one.copy_(theirs[name]) for name, one in mine.items()]
    return filled


def fill_side(side: str, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor],
              ours: Callable[[str], str]) -> list[str]:
    """Copy all weights that have a place, and return their names here."""
    found = {ours(name): value for name, value in theirs.items() if ours(name) in mine}
    wrong = [name for name, value in found.items() if not takes_rows_of(mine[name], value)]
    if wrong or not any(".blocks." in name for name in found):
        what = f"{wrong[0]} has another shape" if wrong else "none of its blocks has a place here"
        raise InputError(what, where=f"warm_start.{side}",
                         remedy="leave the recipe out, so that the model follows from the weights")
    copy_rows(mine, found)
    return list(found)


def rename_for_encoder(name: str) -> str:
    """Return what a parameter of another model is called on the side that reads; the head has no place there."""
    return "" if name.startswith("head.") else name.replace("decoder.", "encoder.", 1)


def make_decoder_renamer(model: Transformer) -> Callable[[str], str]:
    """Return what calls a parameter of another model by its name on the side that writes."""
    embed = "embed." if model.decoder_embed is None else "decoder_embed."
    shared = model.config.decoder is not None and model.config.decoder.tied

    def name(theirs: str) -> str:
        first, _, rest = theirs.partition(".")
        match first:
            case "embed":
                return embed + rest
            case "encoder" | "decoder":
                return f"encoder.{rest}" if shared and ".cross." not in theirs else f"decoder.{rest}"
            case "head":
                return f"head.{rest.removeprefix('language.')}"
            case _:
                return ""

    return name


def rebuild_model(model: Transformer, config: Config, weights: Mapping[str, Tensor] | None = None) -> Transformer:
    """Return a model of another config with the same weights, in the same mode; `weights` replace them.

    Raises `InputError` for a model with an adapter, which belongs to the tree that it was made for.
    """
    if model.provenance.rewrites:
        raise InputError("the model has an adapter beside its weights", where="model",
                         remedy="merge it first, with saucier convert or saucier merge")
    like = next(model.parameters())
    made = allocate_model(config, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        made.load_state_dict(dict(weights or model.state_dict()), strict=True)
    origin = model.provenance.origin
    made.provenance = replace(model.provenance, unread={}, stored=None, saved=None,
                              origin=None if origin is None else replace(origin, tokenizer=None))
    return made.train(model.training)
