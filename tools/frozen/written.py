"""Part `tokens`: what every decoder and encoder-decoder of the zoo writes, greedily and with beams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tests.laws.zoo import decoders, pairs, scrambled, tokens
from torch import Tensor

import saucier
from saucier import config as c
from saucier.model import Transformer
from tools.frozen.items import Item, Tokens

WAYS: dict[str, dict[str, Any]] = {"greedy": {"max_new_tokens": 32}, "beams": {"max_new_tokens": 12, "num_beams": 3}}
PROMPT = 6
MOVED = 1e-5
"""Weights are moved by this share to see which tokens rounding could change; float32 rounds at 6e-8."""


def writers() -> dict[str, c.Transformer]:
    """Return the models that write."""
    return {f"{group} {name}": config for group, found in (("decoder", decoders()), ("pair", pairs()))
            for name, config in found.items()}


def written(configs: Mapping[str, c.Transformer], *, sure: bool) -> Iterator[tuple[str, Item]]:
    """Yield what models write. `sure`: find out which tokens hold out against rounding, too; else all are said to."""
    for name, config in configs.items():
        model = scrambled(config)
        prompt = tokens(config, 1, PROMPT, seed=3)
        ways = WAYS if says(config) else {"in rounds": {}}
        first = {way: write(model, prompt, options) for way, options in ways.items()}
        if sure:
            move(model)
        for way, options in ways.items():
            again = write(model, prompt, options) if sure else first[way]
            yield f"tokens/{name}/{way}", Tokens(tuple(first[way]), agreeing(first[way], again))


def says(config: c.Transformer) -> bool:
    """Say whether a model writes from left to right."""
    return config.language_head is None or not isinstance(config.language_head.predicts, c.WholeText)


def write(model: Transformer, prompt: Tensor, options: Mapping[str, Any]) -> list[int]:
    """Let a model write after a prompt, or from a source; no token ends the text."""
    more: dict[str, Any] = {"decoder_start_token_id": 0} if model.config.encoder is not None else {}
    found: list[int] = saucier.generate(model, prompt, **more, **options)[0].tolist()
    return found


def move(model: Transformer) -> None:
    """Move every weight a little."""
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1 + MOVED * torch.randn(one.shape, generator=draw))


def agreeing(one: list[int], two: list[int]) -> int:
    """Count the first tokens that are the same."""
    return next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
