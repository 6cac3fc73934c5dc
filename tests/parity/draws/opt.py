"""Random legal OPTs."""

from __future__ import annotations

import random

from transformers import OPTConfig


def draw(rng: random.Random) -> tuple[OPTConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    config = OPTConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), num_attention_heads=heads,
        num_hidden_layers=rng.choice([1, 2, 3]), ffn_dim=rng.choice([17, 40]), do_layer_norm_before=rng.random() < 0.6,
        max_position_embeddings=rng.choice([24, 40]), word_embed_proj_dim=rng.choice([None, 6, 11]),
        _remove_final_layer_norm=rng.random() < 0.3, layer_norm_elementwise_affine=rng.random() < 0.7,
        enable_bias=rng.random() < 0.6, activation_function=rng.choice(["relu", "gelu", "silu", "gelu_new"]),
        dropout=rng.choice([0.0, 0.2]), attention_dropout=rng.choice([0.0, 0.3]), layerdrop=rng.choice([0.0, 0.1]),
        tie_word_embeddings=rng.random() < 0.6, num_labels=rng.choice([1, 2, 5]))
    return config, ["OPTForCausalLM", "OPTForSequenceClassification", "OPTForQuestionAnswering", "OPTModel"]
