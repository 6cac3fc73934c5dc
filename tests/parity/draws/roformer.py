"""Random legal RoFormers."""

from __future__ import annotations

import random
from typing import Any

from transformers import RoFormerConfig


def summary(rng: random.Random) -> dict[str, Any]:
    """Return how a text's vector is made, which most configs leave to the class."""
    if rng.random() < 0.5:
        return {}
    projected = rng.random() < 0.7
    return {"summary_type": rng.choice(["first", "last", "mean", "cls_index"]), "summary_use_proj": projected,
            "summary_activation": rng.choice(["tanh", "gelu", None]) if projected else None}


def draw(rng: random.Random) -> tuple[RoFormerConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    config = RoFormerConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([6, 8]), num_attention_heads=heads,
        embedding_size=rng.choice([None, 7, 24]), num_hidden_layers=rng.choice([1, 2, 3]),
        intermediate_size=rng.choice([17, 40]), hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        max_position_embeddings=rng.choice([24, 40]), type_vocab_size=rng.choice([1, 2, 3]),
        layer_norm_eps=rng.choice([1e-12, 1e-5]), hidden_dropout_prob=rng.choice([0.0, 0.1]),
        attention_probs_dropout_prob=rng.choice([0.0, 0.2]), classifier_dropout=rng.choice([None, 0.3]),
        rotary_value=rng.random() < 0.5, is_decoder=rng.random() < 0.3, num_labels=rng.choice([1, 2, 5]),
        **summary(rng), tie_word_embeddings=rng.random() < 0.7)
    if config.is_decoder:
        return config, ["RoFormerForCausalLM", "RoFormerModel"]
    return config, ["RoFormerForMaskedLM", "RoFormerModel", "RoFormerForSequenceClassification",
                    "RoFormerForTokenClassification", "RoFormerForMultipleChoice",
                    *(["RoFormerForQuestionAnswering"] if config.num_labels == 2 else [])]
