"""A model built anew from a changed config, with the weights that it had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from saucier.config import Transformer as Config
from saucier.errors import InputError
from saucier.model import Transformer, unfilled


def rebuilt(model: Transformer, config: Config, weights: Mapping[str, Tensor] | None = None) -> Transformer:
    """Return a model of another config with the same weights, in the same mode; `weights` stand in place of them.

    Raises `InputError` for a model with an adapter, which belongs to the tree that it was made for.
    """
    if model.rewrites:
        raise InputError("the model has an adapter beside its weights", where="model",
                         remedy="merge it first, with saucier convert or saucier merge")
    like = next(model.parameters())
    made = unfilled(config, dtype=like.dtype, device=like.device)
    with torch.no_grad():
        made.load_state_dict(dict(weights or model.state_dict()), strict=True)
    made.generation, made.published = dict(model.generation), dict(model.published)
    made.origin = None if model.origin is None else replace(model.origin, tokenizer=None)
    return made.train(model.training)
