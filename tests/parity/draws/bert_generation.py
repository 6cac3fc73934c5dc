"""Random legal BertGenerations; decoders may read an encoder's output."""

from __future__ import annotations

import random
from typing import Any

import torch
from tests.parity.batches import LENGTH, ROWS, batch
from torch import Tensor
from transformers import BertGenerationConfig


def sizes(rng: random.Random, dim: int | None = None) -> dict[str, Any]:
    """Return the settings that this lineage has in common; `dim` is the width where it is not to be drawn."""
    heads = rng.choice([1, 3, 4]) if dim is None else rng.choice([1, 2, 4])
    return {
        "vocab_size": rng.choice([61, 97]), "hidden_size": dim or heads * rng.choice([5, 8]),
        "num_attention_heads": heads, "num_hidden_layers": rng.choice([1, 2, 3]),
        "intermediate_size": rng.choice([17, 40]), "hidden_act": rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        "max_position_embeddings": rng.choice([24, 40]), "layer_norm_eps": rng.choice([1e-12, 1e-5]),
        "hidden_dropout_prob": rng.choice([0.0, 0.1]), "attention_probs_dropout_prob": rng.choice([0.0, 0.2])}


def draw(rng: random.Random) -> tuple[BertGenerationConfig, list[str]]:
    """Return a config, and the class it may be used with."""
    writes = rng.random() < 0.7
    config = BertGenerationConfig(**sizes(rng), is_decoder=writes, add_cross_attention=writes and rng.random() < 0.6,
                                  tie_word_embeddings=rng.random() < 0.7)
    return config, ["BertGenerationDecoder" if writes else "BertGenerationEncoder"]


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch, for a decoder that reads an encoder sometimes with what the encoder gave."""
    made = batch(config, name, rng)
    if config.add_cross_attention and rng.random() < 0.7:
        generator = torch.Generator().manual_seed(rng.randrange(99))
        made["encoder_hidden_states"] = torch.randn(ROWS, LENGTH - 2, config.hidden_size, generator=generator)
        made["encoder_attention_mask"] = (torch.arange(LENGTH - 2) < torch.tensor([[LENGTH], [4], [7]])).long()
    return made
