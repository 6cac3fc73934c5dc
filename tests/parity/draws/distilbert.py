"""Random legal DistilBERTs."""

from __future__ import annotations

import random

from transformers import DistilBertConfig


def draw(rng: random.Random) -> tuple[DistilBertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    config = DistilBertConfig(
        vocab_size=rng.choice([61, 97]), dim=heads * rng.choice([6, 8]), n_heads=heads, n_layers=rng.choice([1, 2, 3]),
        hidden_dim=rng.choice([17, 40]), activation=rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        max_position_embeddings=rng.choice([24, 40]), sinusoidal_pos_embds=rng.random() < 0.5,
        dropout=rng.choice([0.0, 0.1]), attention_dropout=rng.choice([0.0, 0.2]), qa_dropout=rng.choice([0.0, 0.3]),
        seq_classif_dropout=rng.choice([0.0, 0.3]), num_labels=rng.choice([1, 2, 5]),
        tie_word_embeddings=rng.random() < 0.7)
    names = ["DistilBertForMaskedLM", "DistilBertForSequenceClassification", "DistilBertForTokenClassification",
             "DistilBertForMultipleChoice", "DistilBertModel"]
    return config, [*names, "DistilBertForQuestionAnswering"] if config.num_labels == 2 else names
