"""Random legal GPT-Js."""

from __future__ import annotations

import random

from tests.parity.draws.gpt2 import inputs
from transformers import GPTJConfig

__all__ = ["draw", "inputs"]


def draw(rng: random.Random) -> tuple[GPTJConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, width = rng.choice([1, 3, 4]), rng.choice([6, 7, 8])
    names = ["GPTJForCausalLM", "GPTJForSequenceClassification", "GPTJModel", "GPTJForQuestionAnswering"]
    labels = rng.choice([1, 2, 5])
    config = GPTJConfig(
        vocab_size=rng.choice([61, 97]), n_embd=heads * width, n_head=heads, n_layer=rng.choice([1, 2, 3]),
        n_positions=rng.choice([24, 40]), rotary_dim=rng.choice([2, 4, 6]), n_inner=rng.choice([None, 17]),
        activation_function=rng.choice(["gelu_new", "gelu", "relu", "silu"]), resid_pdrop=rng.choice([0.0, 0.2]),
        embd_pdrop=rng.choice([0.0, 0.1]), attn_pdrop=rng.choice([0.0, 0.3]), bos_token_id=1, eos_token_id=2,
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < 0.3, pad_token_id=0,
        num_labels=labels)
    return config, names if labels == 2 else names[:-1]
