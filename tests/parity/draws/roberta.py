"""Random legal RoBERTas."""

from __future__ import annotations

import random
from typing import Any

from transformers import RobertaConfig

ACTIVATIONS = ["gelu", "relu", "silu", "gelu_new", "gelu_fast", "gelu_10", "quick_gelu", "relu2", "relu6", "leaky_relu",
               "mish", "hardswish", "sigmoid", "laplace", "tanh", "linear"]


def sizes(rng: random.Random) -> dict[str, Any]:
    """Return settings that RoBERTa and its relatives share."""
    heads = rng.choice([1, 3, 4])
    return {
        "vocab_size": rng.choice([61, 97]), "hidden_size": heads * rng.choice([5, 8]), "num_attention_heads": heads,
        "num_hidden_layers": rng.choice([1, 2, 3]), "intermediate_size": rng.choice([17, 40]),
        "hidden_act": rng.choice(ACTIVATIONS),
        "max_position_embeddings": rng.choice([30, 40]), "type_vocab_size": rng.choice([1, 2, 3]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5]), "is_decoder": rng.random() < 0.3,
        "hidden_dropout_prob": rng.choice([0.0, 0.1]), "attention_probs_dropout_prob": rng.choice([0.0, 0.2]),
        "classifier_dropout": rng.choice([None, 0.3]), "num_labels": rng.choice([1, 2, 5]),
        "pad_token_id": rng.choice([0, 1, 3]), "tie_word_embeddings": rng.random() < 0.7,
    }


def classes(config: Any, name: str) -> list[str]:
    """Return the classes of a relative; only two labels mark a span."""
    heads = ["ForMaskedLM", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForMultipleChoice",
             "Model", *(["ForQuestionAnswering"] if config.num_labels == 2 else [])]
    return [name + head for head in heads]


def draw(rng: random.Random) -> tuple[RobertaConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = RobertaConfig(**sizes(rng))
    return config, classes(config, "Roberta")
