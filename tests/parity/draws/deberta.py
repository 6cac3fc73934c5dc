"""Random legal DeBERTas of the first version."""

from __future__ import annotations

import random
from typing import Any

from transformers import DebertaConfig


def common(rng: random.Random) -> dict[str, Any]:
    """Return the fields that both versions have."""
    heads = rng.choice([1, 3, 4])
    dim = heads * rng.choice([5, 8])
    narrow = rng.random() < 0.3
    relative = rng.random() < 0.8
    return {
        "vocab_size": rng.choice([61, 97]), "hidden_size": dim, "num_attention_heads": heads,
        "num_hidden_layers": rng.choice([1, 2, 3]), "intermediate_size": rng.choice([17, 40]),
        "hidden_act": rng.choice(["gelu", "relu", "silu", "gelu_new"]), "max_position_embeddings": rng.choice([24, 40]),
        "type_vocab_size": rng.choice([0, 2, 3]), "layer_norm_eps": rng.choice([1e-12, 1e-5]),
        "relative_attention": relative, "max_relative_positions": rng.choice([-1, 7, 30]),
        "position_biased_input": rng.random() < 0.5,
        "pos_att_type": rng.choice([["c2p", "p2c"], ["p2c"], ["c2p"], "p2c|c2p", *([] if relative else [None])]),
        "hidden_dropout_prob": rng.choice([0.0, 0.1]), "attention_probs_dropout_prob": rng.choice([0.0, 0.2]),
        "pooler_dropout": rng.choice([0.0, 0.3]), "pooler_hidden_act": rng.choice(["gelu", "tanh"]),
        "legacy": narrow or rng.random() < 0.5, **({"embedding_size": 6} if narrow else {}),
        "tie_word_embeddings": rng.random() < 0.7}


def draw(rng: random.Random) -> tuple[DebertaConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = DebertaConfig(**common(rng), num_labels=rng.choice([1, 2, 5]))
    return config, ["DebertaForMaskedLM", "DebertaModel", "DebertaForSequenceClassification",
                    "DebertaForTokenClassification",
                    *(["DebertaForQuestionAnswering"] if config.num_labels == 2 else [])]
