"""Random legal MobileBERTs."""

from __future__ import annotations

import random

from transformers import MobileBertConfig


def draw(rng: random.Random) -> tuple[MobileBertConfig, list[str]]:
    """Return a config, and the classes it may be used with."""
    heads = rng.choice([1, 3, 4])
    narrow = heads * rng.choice([4, 5])
    own, shared = rng.random() < 0.3, rng.random() < 0.7
    dim = narrow if not (own or shared) else heads * rng.choice([6, 8])
    config = MobileBertConfig(
        vocab_size=rng.choice([61, 97]), hidden_size=dim, num_attention_heads=heads,
        embedding_size=rng.choice([3, dim]),
        intra_bottleneck_size=narrow, use_bottleneck=rng.random() < 0.8, use_bottleneck_attention=own,
        key_query_shared_bottleneck=shared, num_feedforward_networks=rng.choice([1, 2, 4]),
        num_hidden_layers=rng.choice([1, 2]), intermediate_size=rng.choice([17, 40]),
        hidden_act=rng.choice(["gelu", "relu", "silu", "gelu_new"]), max_position_embeddings=rng.choice([24, 40]),
        type_vocab_size=rng.choice([1, 2, 3]), layer_norm_eps=rng.choice([1e-12, 1e-5]),
        normalization_type=rng.choice(["no_norm", "layer_norm"]), trigram_input=rng.random() < 0.7,
        hidden_dropout_prob=rng.choice([0.0, 0.1]), attention_probs_dropout_prob=rng.choice([0.0, 0.2]),
        classifier_dropout=rng.choice([None, 0.3]), classifier_activation=rng.random() < 0.7,
        num_labels=rng.choice([1, 2, 5]), tie_word_embeddings=rng.random() < 0.7)
    return config, ["MobileBertForPreTraining", "MobileBertForMaskedLM", "MobileBertModel",
                    "MobileBertForNextSentencePrediction", "MobileBertForSequenceClassification",
                    "MobileBertForTokenClassification", "MobileBertForMultipleChoice",
                    *(["MobileBertForQuestionAnswering"] if config.num_labels == 2 else [])]
