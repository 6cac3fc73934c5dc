"""Random legal FNets."""

from __future__ import annotations

import random

from transformers import FNetConfig


def draw(rng: random.Random) -> tuple[FNetConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = FNetConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=rng.choice([6, 15, 32]), num_hidden_layers=rng.choice([1, 2, 3]),
        intermediate_size=rng.choice([17, 40]), hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        max_position_embeddings=rng.choice([24, 40]), type_vocab_size=rng.choice([1, 2, 4]),
        layer_norm_eps=rng.choice([1e-12, 1e-5]), hidden_dropout_prob=rng.choice([0.0, 0.1]),
        num_labels=rng.choice([1, 2, 5]))
    return config, ["FNetForPreTraining", "FNetForMaskedLM", "FNetModel", "FNetForNextSentencePrediction",
                    "FNetForSequenceClassification", "FNetForTokenClassification", "FNetForMultipleChoice",
                    *(["FNetForQuestionAnswering"] if config.num_labels == 2 else [])]
