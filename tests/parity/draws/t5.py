"""Random legal T5 models, versions 1.0 and 1.1."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.batches import batch
from torch import Tensor
from transformers import T5Config


def sizes(rng: random.Random) -> dict[str, Any]:
    """Return the settings that this lineage has in common."""
    return {
        "vocab_size": rng.choice([61, 97]), "d_model": rng.choice([16, 24]), "d_kv": rng.choice([3, 8]),
        "d_ff": rng.choice([17, 40]), "num_layers": rng.choice([1, 2, 3]), "num_decoder_layers": rng.choice([1, 2, 3]),
        "num_heads": rng.choice([1, 3, 4]), "relative_attention_num_buckets": rng.choice([8, 9, 32, 37]),
        "relative_attention_max_distance": rng.choice([20, 128]), "dropout_rate": rng.choice([0.0, 0.1]),
        "layer_norm_epsilon": rng.choice([1e-6, 1e-4]), "decoder_start_token_id": rng.choice([0, 3])}


def projection(rng: random.Random) -> str:
    """Return a kind of feed-forward."""
    return rng.choice(["relu", "gelu", "silu", "gelu_new", "gated-gelu", "gated-silu", "gated-relu"])


def draw(rng: random.Random) -> tuple[T5Config, list[str]]:
    """Return a config, and the classes it may be used with."""
    config = T5Config(**sizes(rng), feed_forward_proj=projection(rng), tie_word_embeddings=rng.random() < 0.5,
                      classifier_dropout=rng.choice([0.0, 0.3]), num_labels=2)
    names = ["T5ForConditionalGeneration", "T5Model", "T5EncoderModel", "T5ForSequenceClassification",
             "T5ForTokenClassification", "T5ForQuestionAnswering"]
    return config, names


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch; heads that label a text read the source on both sides."""
    made = batch(config, name, rng)
    if "Classification" in name or (rng.random() < 0.5 and "QuestionAnswering" in name):
        made.pop("decoder_input_ids", None)
    return made
