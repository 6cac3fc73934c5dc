"""Random legal CTRLs."""

from __future__ import annotations

import random

from tests.parity.draws.gpt2 import inputs
from transformers import CTRLConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[CTRLConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 2, 3, 4])
    config = CTRLConfig(
        vocab_size=rng.choice([61, 97]), n_embd=heads * rng.choice([6, 8]), n_head=heads, n_layer=rng.choice([1, 2, 3]),
        dff=rng.choice([17, 40]), n_positions=rng.choice([24, 40]), layer_norm_epsilon=rng.choice([1e-6, 1e-3]),
        resid_pdrop=rng.choice([0.0, 0.2]), embd_pdrop=rng.choice([0.0, 0.1]), tie_word_embeddings=rng.random() < 0.6,
        pad_token_id=0, num_labels=rng.choice([1, 2, 5]))
    return config, ["CTRLLMHeadModel", "CTRLForSequenceClassification", "CTRLModel"]
