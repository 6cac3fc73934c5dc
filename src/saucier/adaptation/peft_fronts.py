"""Prefixes and prompts in PEFT's layout: one tensor, and fields that say how it is to be cut.

Letters: P positions before the text, K key-value heads, E head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from saucier.adaptation import config as a
from saucier.adaptation.rewrite import rewrite
from saucier.checkpoints.adapters import VECTORS, Adapter
from saucier.errors import InputError
from saucier.model import Transformer
from saucier.parts.front import Front, PrefixKeys, SoftPrompt


def front_tensor(front: Front) -> Tensor:
    """Return the values as PEFT stores them: a prompt's vectors, or a prefix's keys and values layer by layer.

    Shapes: -> [P, D] or [P, layers · 2 · K · E].
    """
    return front.vectors if isinstance(front, SoftPrompt) else front.made()


def front_document(model: Transformer, task: str | None) -> dict[str, Any]:
    """Return the fields of a prefix or a prompt. Raises `InputError` where PEFT would not compute the same."""
    front = model.front
    assert front is not None, "asked only then"
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
    if model.config.encoder is not None:
        raise InputError("of an encoder-decoder PEFT gives layers the prefixes of other layers", where="model",
                         remedy="save the adapter in our own form (own)")
    if len(set(front.widths)) != 1:
        raise InputError("PEFT takes the heads of all layers for equally many and wide", where="model",
                         remedy="save the adapter in our own form (own)")
    heads, width = front.widths[0]
    return {**common, "peft_type": "PREFIX_TUNING", "token_dim": heads * width, "num_attention_heads": heads,
            "num_transformer_submodules": 1, "prefix_projection": False,
            "encoder_hidden_size": heads * width}


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
    rewrite(model, by=meant(adapter.options, len(values), where))
    assert model.front is not None, "the rewrite put it there"
    if isinstance(model.front, PrefixKeys) and (adapter.options.get("num_transformer_submodules") or 1) > 1:
        values = as_peft_reads(values, len(model.front.widths))
    target = model.front.vectors if isinstance(model.front, SoftPrompt) else held(model.front)
    if target.shape != values.shape:
        raise InputError(f"{VECTORS} is {list(values.shape)} instead of {list(target.shape)}", where=where,
                         remedy="the adapter belongs to another base model")
    with torch.no_grad():
        target.copy_(values)
    return model


def as_peft_reads(values: Tensor, layers: int) -> Tensor:
    """Return the values of a prefix for two stacks in the order in which PEFT gives them to a decoder's layers.

    It cuts them as if self- and cross-attention had their own, and then drops those of the latter: layer l gets what
    is stored for layer 2·l, from the beginning again where there is none (seen in peft 0.21, with T5).
    Shapes: [P, layers · 2 · K · E] -> the same.
    """
    if values.shape[1] % layers:
        return values  # refused by its shape
    parts = values.split(values.shape[1] // layers, dim=1)
    return torch.cat([parts[2 * layer % layers] for layer in range(layers)], dim=1)


def held(front: PrefixKeys) -> Tensor:
    """Return the values of a prefix that has no network."""
    return front.made.get_parameter("values")


def meant(options: Mapping[str, Any], length: int, where: str) -> a.Prefix | a.Prompt:
    """Return what an adapter is, as our config says it."""
    if options.get("peft_type") == "PREFIX_TUNING":
        return a.Prefix(length=length)
    if (options.get("num_transformer_submodules") or 1) > 1:
        raise InputError("a prompt before the decoder too cannot be expressed", where=where,
                         remedy="train it with num_transformer_submodules=1")
    return a.Prompt(length=length, start=a.FromNoise())
