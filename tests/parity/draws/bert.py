"""Random legal BERTs."""

from __future__ import annotations

import random

from transformers import BertConfig


def draw(rng: random.Random) -> tuple[BertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    causal = rng.random() < 0.3
    config = BertConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=heads * rng.choice([5, 8]), num_attention_heads=heads,
        num_hidden_layers=rng.choice([1, 2, 3]), intermediate_size=rng.choice([17, 40]),
        hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]), max_position_embeddings=rng.choice([24, 40]),
        type_vocab_size=rng.choice([1, 2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]), is_decoder=causal,
        hidden_dropout_prob=rng.choice([0.0, 0.1]), attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        classifier_dropout=rng.choice([None, 0.3]), num_labels=rng.choice([1, 2, 5]),
        tie_word_embeddings=rng.random() < 0.7)
    names = ["BertLMHeadModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction", "BertModel",
             "BertForSequenceClassification", "BertForTokenClassification", "BertForMultipleChoice"]
    return config, names if config.num_labels != 2 else [*names, "BertForQuestionAnswering"]
