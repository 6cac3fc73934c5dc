"""Random legal ModernBERTs."""

from __future__ import annotations

import random

from transformers import ModernBertConfig


def draw(rng: random.Random) -> tuple[ModernBertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads, layers = rng.choice([1, 3, 4]), rng.choice([1, 2, 3])
    kinds = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(layers)]
    activations = ["gelu", "relu", "silu", "gelu_new"]
    linear = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
              "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}
    config = ModernBertConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([6, 8]), num_attention_heads=heads,
        num_hidden_layers=layers, intermediate_size=rng.choice([17, 40]), hidden_activation=rng.choice(activations),
        norm_eps=rng.choice([1e-12, 1e-5]), norm_bias=rng.random() < 0.5, attention_bias=rng.random() < 0.5,
        mlp_bias=rng.random() < 0.5, layer_types=rng.choice([None, kinds]), local_attention=rng.choice([2, 6, 9, 40]),
        rope_parameters=rng.choice([None, linear]), attention_dropout=rng.choice([0.0, 0.2]),
        mlp_dropout=rng.choice([0.0, 0.1]), embedding_dropout=rng.choice([0.0, 0.1]),
        classifier_pooling=rng.choice(["cls", "mean"]), classifier_bias=rng.random() < 0.5,
        classifier_activation=rng.choice(activations), decoder_bias=rng.random() < 0.5,
        tie_word_embeddings=rng.random() < 0.7, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
        sep_token_id=2, num_labels=rng.choice([1, 2, 5]))
    return config, ["ModernBertForMaskedLM", "ModernBertModel", "ModernBertForSequenceClassification",
                    "ModernBertForTokenClassification", "ModernBertForMultipleChoice",
                    *(["ModernBertForQuestionAnswering"] if config.num_labels == 2 else [])]
