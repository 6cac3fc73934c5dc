"""Random legal Mixtrals."""

from __future__ import annotations

import random

from transformers import MixtralConfig


def draw(rng: random.Random) -> tuple[MixtralConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    groups, experts = rng.choice([1, 2]), rng.choice([1, 2, 5])
    heads = groups * rng.choice([1, 3])
    config = MixtralConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * 8, num_attention_heads=heads, num_key_value_heads=groups,
        head_dim=rng.choice([None, 6]), num_hidden_layers=rng.choice([1, 2, 3]), intermediate_size=rng.choice([20, 40]),
        hidden_act=rng.choice(["silu", "gelu", "relu"]), rms_norm_eps=rng.choice([1e-5, 1e-6]),
        tie_word_embeddings=rng.random() < 0.3, sliding_window=rng.choice([None, 3, 64]),
        attention_dropout=rng.choice([0.0, 0.1]), num_local_experts=experts, pad_token_id=0,
        num_experts_per_tok=rng.choice([1, min(2, experts)]), router_jitter_noise=rng.choice([0.0, 0.1]),
        rope_parameters={"rope_type": "default", "rope_theta": rng.choice([1e4, 1e6])})
    return config, ["MixtralForCausalLM", "MixtralModel", "MixtralForSequenceClassification",
                    "MixtralForTokenClassification", "MixtralForQuestionAnswering"]
