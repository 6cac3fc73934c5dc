"""Random legal BLOOMs."""

from __future__ import annotations

import random

from tests.parity.draws.llama import CLASSES
from transformers import BloomConfig


def draw(rng: random.Random) -> tuple[BloomConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 2, 3, 4, 6])
    config = BloomConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), n_head=heads,
        n_layer=rng.choice([1, 2, 3]), apply_residual_connection_post_layernorm=rng.random() < 0.4,
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]), hidden_dropout=rng.choice([0.0, 0.2]), bos_token_id=1,
        eos_token_id=2, attention_dropout=rng.choice([0.0, 0.3]), tie_word_embeddings=rng.random() < 0.6,
        pad_token_id=3, num_labels=rng.choice([1, 2, 5]))
    return config, [f"Bloom{name}" for name in CLASSES]
