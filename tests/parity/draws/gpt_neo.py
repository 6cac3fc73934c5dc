"""Random legal GPT-Neos."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.draws.gpt2 import inputs
from transformers import GPTNeoConfig

__all__ = ["draw", "inputs"]


def types(rng: random.Random) -> list[Any]:
    """Return a list of turns."""
    def turn() -> list[Any]:
        return [[rng.choice(["global", "local"]) for _ in range(rng.choice([1, 2]))], rng.choice([1, 2])]

    return [turn() for _ in range(rng.choice([1, 1, 2]))]


def draw(rng: random.Random) -> tuple[GPTNeoConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, turns = rng.choice([1, 3, 4]), types(rng)
    config = GPTNeoConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), num_heads=heads, attention_types=turns,
        num_layers=sum(len(kinds) * times for kinds, times in turns), window_size=rng.choice([1, 4, 50]),
        intermediate_size=rng.choice([None, 17]), max_position_embeddings=rng.choice([24, 40]),
        activation_function=rng.choice(["gelu_new", "gelu", "relu", "silu"]), resid_dropout=rng.choice([0.0, 0.2]),
        embed_dropout=rng.choice([0.0, 0.1]), attention_dropout=rng.choice([0.0, 0.3]), bos_token_id=1, eos_token_id=2,
        layer_norm_epsilon=rng.choice([1e-5, 1e-3]), tie_word_embeddings=rng.random() < 0.6, pad_token_id=0,
        num_labels=rng.choice([1, 2, 5]))
    return config, [f"GPTNeo{name}" for name in ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification",
                                                 "ForQuestionAnswering", "Model")]
