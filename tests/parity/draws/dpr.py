"""Random legal DPR encoders and readers."""

from __future__ import annotations

import random

from transformers import DPRConfig


def draw(rng: random.Random) -> tuple[DPRConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, width = rng.choice([1, 3, 4]), rng.choice([0, 0, 7])
    config = DPRConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), num_attention_heads=heads,
        num_hidden_layers=rng.choice([1, 2, 3]), intermediate_size=rng.choice([17, 40]),
        hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]), max_position_embeddings=rng.choice([24, 40]),
        type_vocab_size=rng.choice([1, 2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
        pad_token_id=rng.choice([0, 4]),
        hidden_dropout_prob=rng.choice([0.0, 0.1]), attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        projection_dim=width)
    encoders = ["DPRQuestionEncoder", "DPRContextEncoder"]
    return config, encoders if width else [*encoders, "DPRReader"]
