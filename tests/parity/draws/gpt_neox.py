"""Random legal GPT-NeoXs."""

from __future__ import annotations

import random

from tests.parity.draws.llama import CLASSES, rotary
from transformers import GPTNeoXConfig


def draw(rng: random.Random) -> tuple[GPTNeoXConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, (width, share) = rng.choice([1, 3, 4]), rng.choice([(8, 1.0), (8, 0.5), (16, 0.25), (7, 0.6)])
    rope = {**rotary(rng, int(width * share)), "partial_rotary_factor": share}
    config = GPTNeoXConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * width, num_attention_heads=heads,
        num_hidden_layers=rng.choice([1, 2, 3]), intermediate_size=rng.choice([17, 40]), rope_parameters=rope,
        hidden_act=rng.choice(["gelu", "gelu_new", "relu", "silu"]), use_parallel_residual=rng.random() < 0.5,
        attention_bias=rng.random() < 0.6, hidden_dropout=rng.choice([0.0, 0.2]), bos_token_id=1, eos_token_id=2,
        attention_dropout=rng.choice([0.0, 0.3]), max_position_embeddings=rng.choice([10, 24]), pad_token_id=0,
        layer_norm_eps=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < 0.3,
        num_labels=rng.choice([1, 2, 5]))
    return config, [f"GPTNeoX{name}" for name in CLASSES]
