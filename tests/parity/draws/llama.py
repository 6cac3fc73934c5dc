"""Random legal LLaMAs, and the rotary settings that its descendants share."""

from __future__ import annotations

import random
from typing import Any

from transformers import LlamaConfig

CLASSES = ("ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model")
LENGTH = 24


def rotary(rng: random.Random, width: int) -> dict[str, Any]:
    """Return the rotary settings of heads of which `width` values are turned; some are for texts longer than eight."""
    theta = rng.choice([100.0, 10000.0])
    factors = [[round(rng.uniform(1, 4), 2) for _ in range(width // 2)] for _ in range(2)]
    kinds: list[dict[str, Any]] = [
        {"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": rng.choice([1.0, 3.0])},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": rng.choice([8, 64])},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": rng.choice([8, 200]),
         "beta_fast": rng.choice([32.0, 4.0]), "truncate": rng.random() < 0.7,
         **rng.choice([{}, {"attention_factor": 1.3}, {"mscale": 1.0, "mscale_all_dim": 0.5}])},
        {"rope_type": "longrope", "short_factor": factors[0], "long_factor": factors[1],
         "original_max_position_embeddings": rng.choice([8, 20]), **rng.choice([{}, {"factor": 2.0},
                                                                                {"attention_factor": 1.2}])},
    ]
    return {"rope_theta": theta, **rng.choice(kinds)}


def sizes(rng: random.Random) -> dict[str, Any]:
    """Return what LLaMA, Mistral and Mixtral all have."""
    groups, share = rng.choice([1, 3]), rng.choice([1, 2])
    heads, width = groups * share, rng.choice([4, 6, 8])
    own = rng.random() < 0.3
    return {"vocab_size": rng.choice([61, 97]), "hidden_size": heads * (10 if own else width),
            "head_dim": width if own else None, "num_attention_heads": heads, "num_key_value_heads": groups,
            "num_hidden_layers": rng.choice([1, 2, 3]), "intermediate_size": rng.choice([17, 40]),
            "max_position_embeddings": rng.choice([10, LENGTH]), "rms_norm_eps": rng.choice([1e-6, 1e-3]),
            "rope_parameters": rotary(rng, width), "attention_dropout": rng.choice([0.0, 0.1]),
            "hidden_act": rng.choice(["silu", "gelu", "relu", "gelu_pytorch_tanh"]),
            "tie_word_embeddings": rng.random() < 0.4, "pad_token_id": 0, "num_labels": rng.choice([1, 2, 5])}


def draw(rng: random.Random) -> tuple[LlamaConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = LlamaConfig(**sizes(rng), attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5)
    return config, [f"Llama{name}" for name in CLASSES]
