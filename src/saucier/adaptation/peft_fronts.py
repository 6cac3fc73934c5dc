"""Prefixes and prompts in PEFT's layout: one tensor, and fields that say how it is to be cut.

Letters: P positions before the text, K key-value heads, E head width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from saucier.adaptation import config as a
from saucier.adaptation.rewrite import rewrite
from saucier.checkpoints.adapters import VECTORS, Adapter, another_base
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.front import PrefixKeys, SoftPrompt, TargetPrompt


def front_tensor(model: Transformer) -> Tensor:
    """Return the values as PEFT stores them: a prompt's vectors, or a prefix's keys and values layer by layer.

    Of an encoder-decoder's prefix every second layer is filler, which PEFT drops (see `as_peft_reads`).
    Shapes: -> [P, D] or [P, stored layers · 2 · K · E].
    """
    match model.front:
        case SoftPrompt(vectors=vectors):
            return vectors
        case PrefixKeys(made=made, widths=widths):
            values: Tensor = made()
            if not writes_beside(model):
                return values
            layers = values.unflatten(1, (len(widths), -1))
            return torch.stack([layers, torch.zeros_like(layers)], dim=2).flatten(1)
        case _:
            raise AssertionError("asked only where there is one")


def writes_beside(model: Transformer) -> bool:
    """Say whether a model is an encoder-decoder."""
    return model.config.encoder is not None and model.config.decoder is not None


def front_document(model: Transformer, task: str | None) -> dict[str, Any]:
    """Return the fields of a prefix or a prompt. Raises `InputError` where PEFT would not compute the same."""
    front = model.front
    assert front is not None, "asked only then"
    if isinstance(front, TargetPrompt):
        raise InputError("PEFT gives a decoder beside an encoder no prompt", where="model",
                         remedy="save the adapter in our own form (own)")
    if task is None:
        raise InputError("PEFT has no task for such a model, so it puts nothing before its text", where="model",
                         remedy="save the adapter in our own form (own)")
    common = {"num_virtual_tokens": front.length, "num_layers": layers_of(model)}
    if isinstance(front, SoftPrompt):
        return {**common, "peft_type": "PROMPT_TUNING", "prompt_tuning_init": "RANDOM",
                "token_dim": front.vectors.shape[1], "num_transformer_submodules": 1,
                "num_attention_heads": front.vectors.shape[1]}
    if model.config.decoder is None:
        raise InputError("the encoders that PEFT uses leave a prefix out", where="model",
                         remedy="save the adapter in our own form (own)")
    if len(set(front.widths)) != 1:
        raise InputError("PEFT takes the heads of all layers for equally many and wide", where="model",
                         remedy="save the adapter in our own form (own)")
    heads, width = front.widths[0]
    stacks = 2 if writes_beside(model) else 1
    return {**common, "num_layers": stacks * len(front.widths), "peft_type": "PREFIX_TUNING",
            "token_dim": heads * width, "num_attention_heads": heads, "num_transformer_submodules": stacks,
            "prefix_projection": False, "encoder_hidden_size": heads * width}


def layers_of(model: Transformer) -> int:
    """Return the layers of the stack that writes, or of the only one."""
    stack = model.config.decoder or model.config.encoder
    assert stack is not None, "check() refuses a model without stacks"
    return len(stack.blocks())


def put_front(model: Transformer, adapter: Adapter) -> Transformer:
    """Put an adapter's prefix or prompt before the text of its base model. Raises `InputError` for one of another."""
    where = str(adapter.folder)
    if VECTORS not in adapter.weights:
        raise InputError(f"{VECTORS} is missing", where=where, remedy="fetch the adapter again")
    values = adapter.weights[VECTORS].float()
    if values.dim() != 2 or not len(values):
        raise InputError(f"{VECTORS} is {list(values.shape)}", where=where, remedy="fetch the adapter again")
    stacks = adapter.options.get("num_transformer_submodules") or 1
    if adapter.options.get("peft_type") == "PROMPT_TUNING":
        values = values[:max(1, len(values) // stacks)]  # PEFT stores a prompt for the decoder too, and never reads it
    rewrite(model, by=meant(adapter.options, len(values)))
    assert isinstance(model.front, PrefixKeys | SoftPrompt), "the rewrite put it there"
    if isinstance(model.front, PrefixKeys) and stacks > 1:
        values = as_peft_reads(values, model.front.widths)
    target = model.front.vectors if isinstance(model.front, SoftPrompt) else held(model.front)
    if target.shape != values.shape:
        assert model.origin is not None, "an adapter is put on a base that was opened"
        raise another_base(f"{VECTORS} is {list(values.shape)} instead of {list(target.shape)}", adapter.folder,
                           adapter.base, model.origin.path)
    with torch.no_grad():
        target.copy_(values)
    return model


def as_peft_reads(values: Tensor, widths: Sequence[tuple[int, int]]) -> Tensor:
    """Return the values of a prefix for two stacks in the order in which PEFT gives them to a decoder's layers.

    It cuts them as if self- and cross-attention had their own, and then drops those of the latter: layer l gets what
    is stored for layer 2·l, from the beginning again where there is none (seen in peft 0.21, with T5).
    Shapes: [P, stored layers · 2 · K · E] -> [P, layers · 2 · K · E].
    """
    wide = 2 * widths[0][0] * widths[0][1]
    if values.shape[1] % wide:
        return values  # refused by its shape
    parts = values.split(wide, dim=1)
    return torch.cat([parts[2 * layer % len(parts)] for layer in range(len(widths))], dim=1)


def held(front: PrefixKeys) -> Tensor:
    """Return the values of a prefix that has no network."""
    return front.made.get_parameter("values")


def meant(options: Mapping[str, Any], length: int) -> a.Prefix | a.Prompt:
    """Return what an adapter is, as our config says it."""
    if options.get("peft_type") == "PREFIX_TUNING":
        return a.Prefix(length=length)
    return a.Prompt(length=length, start=a.FromNoise())
