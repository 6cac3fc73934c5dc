"""Random legal LEDs."""

from __future__ import annotations

import random
from typing import Any

import torch
from tests.parity.batches import batch
from tests.parity.draws.bart import sizes
from torch import Tensor
from transformers import LEDConfig


def draw(rng: random.Random) -> tuple[LEDConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    given = sizes(rng)
    given.pop("scale_embedding"), given.pop("max_position_embeddings")
    window = rng.choice([4, 6, [rng.choice([4, 8]) for _ in range(given["encoder_layers"])]])
    config = LEDConfig(**given, attention_window=window, max_encoder_position_embeddings=rng.choice([20, 40]),
                       max_decoder_position_embeddings=rng.choice([20, 30]))
    return config, ["LEDForConditionalGeneration", "LEDModel", "LEDForQuestionAnswering"]


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch, sometimes with tokens that are global."""
    made = batch(config, name, rng)
    if rng.random() < 0.7:
        made["global_attention_mask"] = (torch.rand(made["input_ids"].shape, generator=torch.Generator().manual_seed(
            rng.randrange(99))) < 0.3).long()
    return made
