"""Random legal BARTs."""

from __future__ import annotations

import random
from typing import Any

from tests.parity.batches import batch
from torch import Tensor
from transformers import BartConfig


def sizes(rng: random.Random) -> dict[str, Any]:
    """Return the settings that this lineage has in common."""
    heads = rng.choice([1, 2, 3])
    return {
        "vocab_size": rng.choice([61, 97]), "d_model": heads * 2 * rng.choice([3, 4, 5]),
        "encoder_layers": rng.choice([1, 2, 3]), "decoder_layers": rng.choice([1, 2, 3]),
        "encoder_attention_heads": heads, "decoder_attention_heads": rng.choice([heads, 2 * heads]),
        "encoder_ffn_dim": rng.choice([17, 40]), "decoder_ffn_dim": rng.choice([11, 32]),
        "activation_function": rng.choice(["gelu", "relu", "silu", "gelu_new"]),
        "max_position_embeddings": rng.choice([20, 40]), "scale_embedding": rng.random() < 0.5,
        "tie_word_embeddings": rng.random() < 0.7, "dropout": rng.choice([0.0, 0.1]),
        "attention_dropout": rng.choice([0.0, 0.1]), "activation_dropout": rng.choice([0.0, 0.2]),
        "encoder_layerdrop": rng.choice([0.0, 0.1]), "decoder_layerdrop": rng.choice([0.0, 0.1])}


def alone(config: Any, name: str) -> list[str]:
    """Return the class of a decoder alone, whose cache has the encoder's number of layers, where that is enough."""
    return [name] if config.encoder_layers >= config.decoder_layers else []


def draw(rng: random.Random) -> tuple[BartConfig, list[str]]:
    """Return a config, and the classes it may be used with (two labels are saved as if there were three)."""
    config = BartConfig(**sizes(rng), classifier_dropout=rng.choice([0.0, 0.3]), num_labels=rng.choice([1, 3, 5]))
    return config, ["BartForConditionalGeneration", "BartModel", "BartForSequenceClassification",
                    "BartForQuestionAnswering", *alone(config, "BartForCausalLM")]


def inputs(config: Any, name: str, rng: random.Random) -> dict[str, Tensor]:
    """Return a batch; heads that label a text read the source on both sides."""
    made = batch(config, name, rng)
    if "CausalLM" in name or "SequenceClassification" in name or (rng.random() < 0.5 and "QuestionAnswering" in name):
        made.pop("decoder_input_ids", None)
    return made
